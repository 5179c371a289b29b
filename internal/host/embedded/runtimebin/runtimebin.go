// Package runtimebin owns the host's copy of crannog-runtime, the small program that gVisor's
// processes run, if it is embedded in this binary.
package runtimebin

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/crannog/crannog/internal/host/embedded"
)

// bin holds crannog-runtime if make built it before this package. A plain go build finds only a
// placeholder.
//
//go:embed bin
var bin embed.FS

const embeddedName = "bin/crannog-runtime"

// Path returns the program's path below dir, where it is written on first use. It returns "" if no
// program is embedded. gVisor's processes then run this binary.
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
