// Package processpbconnect owns the handler and the client of the process service.
// All but this comment is generated from proto/process.proto.
package processpbconnect
