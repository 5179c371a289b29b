// Package filesystempbconnect owns the handler and the client of the filesystem service. Everything
// except this comment is generated from proto/filesystem.proto.
package filesystempbconnect
