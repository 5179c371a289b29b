// Package filesystempb owns the messages of the filesystem service. All but this comment
// is generated from proto/filesystem.proto.
package filesystempb
