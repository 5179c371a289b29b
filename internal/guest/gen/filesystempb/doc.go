// Package filesystempb owns the messages of the filesystem service. Everything except this comment
// is generated from proto/filesystem.proto.
package filesystempb
