// Package runtimebin owns the program that plays gVisor's parts, as a file on
// the host: one that can do nothing else, if this binary was built with it
// inside.
package runtimebin

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/crannog/crannog/internal/host/embedded"
)

// bin holds crannog-runtime if make built it before this package. A plain go
// build finds only the note beside it.
//
//go:embed bin
var bin embed.FS

const embeddedName = "bin/crannog-runtime"

// Path returns the program's path below dir, where it is written on first
// use, or "" if this binary carries none and has to play the parts itself.
func Path(dir string) (string, error) {
	path, err := embedded.Program(bin, embeddedName, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("runtime: %w", err)
	}
	return path, nil
}
