// Package gen owns the Go code that is generated from the files in proto. It has no code itself.
// Generating needs protoc, protoc-gen-go v1.36.12 and protoc-gen-connect-go v1.21.1 in PATH.
package gen

//go:generate protoc -I ../../../proto --go_out=. --go_opt=module=github.com/crannog/crannog/internal/guest/gen --go_opt=Mprocess.proto=github.com/crannog/crannog/internal/guest/gen/processpb --go_opt=Mfilesystem.proto=github.com/crannog/crannog/internal/guest/gen/filesystempb --connect-go_out=. --connect-go_opt=module=github.com/crannog/crannog/internal/guest/gen --connect-go_opt=Mprocess.proto=github.com/crannog/crannog/internal/guest/gen/processpb --connect-go_opt=Mfilesystem.proto=github.com/crannog/crannog/internal/guest/gen/filesystempb process.proto filesystem.proto
