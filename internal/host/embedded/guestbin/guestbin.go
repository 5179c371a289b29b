// Package guestbin owns the host's copy of the program that runs as PID 1 in a sandbox. This is the
// small guest if it is embedded in this binary, otherwise this binary itself, which can also act as
// the guest.
package guestbin

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/crannog/crannog/internal/host/embedded"
)

// bin holds crannog-guest if make built it before this package. A plain go build finds only a
// placeholder.
//
//go:embed bin
var bin embed.FS

const embeddedName = "bin/crannog-guest"

// Embedded reports whether this binary contains the small guest.
func Embedded() bool {
	_, err := fs.Stat(bin, embeddedName)
	return err == nil
}

// Path returns the guest's path on the host. An embedded guest is written below dir first.
func Path(dir string) (string, error) {
	path, err := embedded.Program(bin, embeddedName, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return os.Executable()
	}
	if err != nil {
		return "", fmt.Errorf("guest: %w", err)
	}
	return path, nil
}
