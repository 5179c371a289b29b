// Package processpbconnect owns the handler and the client of the process service. Everything
// except this comment is generated from proto/process.proto.
package processpbconnect
