// Package guestbin owns the program that runs as PID 1 inside a box, as a
// file on the host: the small guest if this binary was built with one inside,
// otherwise this binary itself, which can play the guest's role.
package guestbin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// bin holds crannog-guest if make built it before this package. A plain go
// build finds only the note beside it.
//
//go:embed bin
var bin embed.FS

const embeddedName = "bin/crannog-guest"

// Embedded tells whether this binary carries the small guest.
func Embedded() bool {
	_, err := fs.Stat(bin, embeddedName)
	return err == nil
}

// Path returns the guest's path on the host. The embedded one is written
// below dir, under a name that its content decides, so that an upgrade never
// changes the file of a running box.
func Path(dir string) (string, error) {
	data, err := bin.ReadFile(embeddedName)
	if errors.Is(err, fs.ErrNotExist) {
		return os.Executable()
	}
	if err != nil {
		return "", fmt.Errorf("guest: %w", err)
	}
	sum := sha256.Sum256(data)
	path := filepath.Join(dir, "guest-"+hex.EncodeToString(sum[:8]))
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(data)) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("guest: %w", err)
	}
	return path, install(path, data)
}

// install writes the file in one step: several servers may start at once.
func install(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".guest-*")
	if err != nil {
		return fmt.Errorf("guest: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(0o755), f.Close()); err != nil {
		return fmt.Errorf("guest: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("guest: %w", err)
	}
	return nil
}
