// Package guestbin owns the program that runs as PID 1 inside a box, as a
// file on the host: the small guest if this binary was built with one inside,
// otherwise this binary itself, which can play the guest's role.
package guestbin

import (
	"embed"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
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
	f, err := bin.Open(embeddedName)
	if errors.Is(err, fs.ErrNotExist) {
		return os.Executable()
	}
	if err != nil {
		return "", fmt.Errorf("guest: %w", err)
	}
	defer f.Close()
	name, size, err := nameOf(f)
	if err != nil {
		return "", fmt.Errorf("guest: %w", err)
	}
	path := filepath.Join(dir, name)
	if info, err := os.Stat(path); err == nil && info.Size() == size {
		return path, nil
	}
	data, err := bin.ReadFile(embeddedName)
	if err != nil {
		return "", fmt.Errorf("guest: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("guest: %w", err)
	}
	return path, install(path, data)
}

// nameOf names the program by its length and two checksums that processors
// compute: this runs at every start of the command line, where a
// cryptographic digest of ten megabytes would be felt. Nobody but the build
// chooses the content, so there is nobody to forge it.
func nameOf(r io.Reader) (string, int64, error) {
	ieee, castagnoli := crc32.NewIEEE(), crc32.New(crc32.MakeTable(crc32.Castagnoli))
	size, err := io.Copy(io.MultiWriter(ieee, castagnoli), r)
	return fmt.Sprintf("guest-%x-%08x%08x", size, ieee.Sum32(), castagnoli.Sum32()), size, err
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
