// Package processpb owns the messages of the process service. Everything except this comment is
// generated from proto/process.proto.
package processpb
