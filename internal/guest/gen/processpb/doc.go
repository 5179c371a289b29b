// Package processpb owns the messages of the process service. All but this comment
// is generated from proto/process.proto.
package processpb
