// Package sandboxdir owns the directory that an engine keeps for each sandbox: the record in it, how
// all of them are listed, and how one is removed.
package sandboxdir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/host/durable"
	"github.com/crannog/crannog/internal/ids"
)

// RecordName is the file with the sandbox's record.
const RecordName = "box.json"

// Read fills rec, a pointer, with the record of the sandbox with this directory.
func Read(dir string, rec any) error {
	data, err := os.ReadFile(filepath.Join(dir, RecordName))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, rec); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// Write replaces the record in one step, so that a reader or a crash never sees half of one.
func Write(dir string, rec any) error {
	data, err := json.Marshal(rec)
	if err == nil {
		err = durable.Replace(filepath.Join(dir, RecordName), data, durable.Options{Draft: RecordName + ".*"})
	}
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// Unreadable reports whether a record could not be read, as opposed to being absent or incomplete.
// Nothing follows from that error, in particular not that the files are no longer needed.
func Unreadable(err error) bool {
	_, failed := errors.AsType[*fs.PathError](err)
	return failed && !errors.Is(err, fs.ErrNotExist)
}

// List returns the state of each sandbox with a directory in parent. describe reads the record in a
// directory and returns when the sandbox was made and whether it runs.
func List(ctx context.Context, parent string, describe func(dir string) (created time.Time, running bool, err error)) ([]engine.Status, error) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, err
	}
	var out []engine.Status
	for _, entry := range entries {
		if !entry.IsDir() || !ids.ValidSandbox(entry.Name()) {
			continue
		}
		status := engine.Status{ID: entry.Name(), State: engine.Stopped}
		created, running, err := describe(filepath.Join(parent, entry.Name()))
		if Unreadable(err) {
			return nil, err
		}
		// A directory without a record is a sandbox whose creation was cut short: it is listed as
		// stopped, so that it gets removed.
		if err == nil {
			status.Created = created
			if running {
				status.State = engine.Running
			}
		}
		out = append(out, status)
	}
	return out, ctx.Err()
}

// Remove deletes a sandbox's directory, its record last: as long as that exists, a process that
// cleans up after a crash can identify the directory. Another process that waits for the sandbox
// writes down how it ended, and may do so just between the last file and the directory itself.
func Remove(dir string) error {
	const tries = 100
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if entry.Name() != RecordName {
			if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	for range tries {
		if err = os.RemoveAll(dir); !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	return err
}

// Short returns a path to a directory that is short enough for the address of a socket, and has none
// of the letters of the directory's own path. It leads there, in this process, until done is called,
// wherever the directory is moved.
func Short(dir string) (path string, done func(), err error) {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd()), func() { f.Close() }, nil
}
