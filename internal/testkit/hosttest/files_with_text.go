package hosttest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Holding lists the regular files below a directory that contain a text. A file that is removed
// during the search does not count. A file that cannot be read fails the test, since it may contain
// the text.
func Holding(t testing.TB, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.Type().IsRegular() {
			return nil
		}
		var data []byte
		if err == nil {
			data, err = readFile(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if bytes.Contains(data, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// readFile reads a file. Databases are read by another process: when a process closes a file, it
// loses all POSIX locks that it has on that file, also those of its own server. Another process that
// then closes the database believes that it is the last, and removes the log that the server uses.
func readFile(path string) ([]byte, error) {
	if !strings.Contains(filepath.Base(path), ".db") {
		return os.ReadFile(path)
	}
	if _, err := os.Lstat(path); err != nil {
		return nil, err
	}
	data, err := exec.Command("cat", path).Output() //nolint:noctx // reads a small file
	if _, gone := os.Lstat(path); err != nil && gone != nil {
		return nil, gone
	}
	return data, err
}
