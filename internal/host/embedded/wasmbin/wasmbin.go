// Package wasmbin owns the host's copy of the program that runs WebAssembly modules, if it is
// embedded in this binary.
package wasmbin

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/crannog/crannog/internal/host/embedded"
)

// bin holds crannog-wasm if make built it before this package. A plain go build finds only a
// placeholder.
//
//go:embed bin
var bin embed.FS

const embeddedName = "bin/crannog-wasm"

// Path returns the program's path below dir, where it is written on first use. It returns "" if no
// program is embedded.
func Path(dir string) (string, error) {
	path, err := embedded.Program(bin, embeddedName, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("program for WebAssembly: %w", err)
	}
	return path, nil
}
