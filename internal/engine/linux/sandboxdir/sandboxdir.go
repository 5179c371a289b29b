// Package sandboxdir owns the directory of a sandbox on an engine: the record and the socket in it,
// the list of all sandboxes, and the removal.
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

// Names of the file with the sandbox's record.
const (
	RecordName = "sandbox.json"
	// EarlierName is the name in the directories of sandboxes of earlier versions. Such a sandbox
	// keeps it, because a process of that version may still wait for the sandbox.
	EarlierName = "box.json"
)

// Read fills rec, a pointer, with the record of the sandbox with this directory.
func Read(dir string, rec any) error {
	data, err := os.ReadFile(filepath.Join(dir, RecordName))
	if errors.Is(err, fs.ErrNotExist) {
		data, err = os.ReadFile(filepath.Join(dir, EarlierName))
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, rec); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// Write replaces the record atomically, so that it is never incomplete, even after a crash.
func Write(dir string, rec any) error {
	name := RecordName
	if _, err := os.Lstat(filepath.Join(dir, EarlierName)); err == nil {
		name = EarlierName
	}
	data, err := json.Marshal(rec)
	if err == nil {
		err = durable.Replace(filepath.Join(dir, name), data, durable.Options{Draft: name + ".*"})
	}
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// Unreadable reports whether a record could not be read, as opposed to being absent or incomplete.
// Such an error does not show whether the sandbox exists, so its files may still be needed.
func Unreadable(err error) bool {
	_, failed := errors.AsType[*fs.PathError](err)
	return failed && !errors.Is(err, fs.ErrNotExist)
}

// List returns the state of each sandbox that has a directory in parent. The function describe
// reads the record in a directory and returns when the sandbox was created and whether it runs.
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
		// A directory without a record belongs to a sandbox whose creation was interrupted. It is
		// listed as stopped, so that it gets removed.
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

// RemovalName is a file that exists while a process removes the sandbox. It is deleted after
// the record. A process that looks for this file first and then for the record, and finds neither,
// therefore knows that the sandbox was removed.
const RemovalName = "removed"

// Remove deletes a sandbox's directory. The record is among the last files, because a process that
// cleans up after a crash identifies the directory by the record. Another process that waits for the
// sandbox may write its exit status between the removal of the last file and that of the directory.
func Remove(dir string) error {
	const maxTries = 100
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); name != RecordName && name != EarlierName && name != RemovalName {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{RecordName, EarlierName} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for range maxTries {
		if err = os.RemoveAll(dir); !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	return err
}
