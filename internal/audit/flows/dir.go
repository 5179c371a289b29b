// Package flows owns the files with the network flows of sandboxes: one file for each sandbox, one
// line for each flow. The egress gateway writes them, and other processes read them.
package flows

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/ids"
)

// suffix is the suffix of the files: newline-delimited JSON.
const suffix = ".ndjson"

// Dir is the directory of these files.
type Dir struct{ path string }

// New returns the directory. Create creates it on first use.
func New(path string) *Dir { return &Dir{path: path} }

// Path returns the path of the directory.
func (d *Dir) Path() string { return d.path }

func (d *Dir) file(sandbox string) (string, error) {
	// The ID becomes part of a path, so it must contain only characters of the ID alphabet.
	if err := ids.CheckSandbox(sandbox); err != nil {
		return "", err
	}
	return filepath.Join(d.path, sandbox+suffix), nil
}

// Create opens a sandbox's file for appending. The flows of a sandbox are one sequence, even with
// several writers one after the other.
func (d *Dir) Create(sandbox string) (*os.File, error) {
	path, err := d.file(sandbox)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return nil, fmt.Errorf("network flows: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("network flows: %w", err)
	}
	return f, nil
}

// Remove removes a sandbox's file. A file that does not exist is no error.
func (d *Dir) Remove(sandbox string) error {
	path, err := d.file(sandbox)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("network flows: %w", err)
	}
	return nil
}

// List returns the sandboxes that have a file.
func (d *Dir) List() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("network flows: %w", err)
	}
	var list []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), suffix); ok && ids.ValidSandbox(id) {
			list = append(list, id)
		}
	}
	return list, nil
}
