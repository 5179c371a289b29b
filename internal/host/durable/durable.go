// Package durable owns atomic creation and replacement of files: a file is complete or absent and,
// where requested, survives a loss of power.
package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Options configure how a file is written. The zero value makes a file of mode 0600 that readers
// and crashes of the process see complete, and that a loss of power may undo.
type Options struct {
	// Draft is the name of the temporary file, in the same directory, to which the content is
	// written first. A "*" in the name stands for a unique part, for directories with several
	// concurrent writers. Without a "*", a draft that a crash left behind is removed first, and the
	// caller must hold a lock. "" stands for the name of the file with ".new" appended.
	Draft string
	// Mode is the file's mode, whatever the umask is. 0 stands for 0600 less the umask.
	Mode fs.FileMode
	// Sync syncs the content before the file gets its name, and the directory before the call
	// returns. Files that other state refers to need it: keys, signatures, checkpoints.
	Sync bool
	// Step, unless nil, is called before each step: "write", "sync", "close", "name" and "sync
	// directory". If it returns an error, the step fails with it. It is for tests in which a step
	// fails or the process dies.
	Step func(name string) error
}

// Replace writes a file and gives it its name, replacing any file of that name.
func Replace(path string, data []byte, o Options) error {
	return ReplaceWith(path, o, writeBytes(data))
}

// ReplaceWith is Replace for content that the function write produces.
func ReplaceWith(path string, o Options, write func(io.Writer) error) error {
	return o.put(path, write, func(draft string) error { return os.Rename(draft, path) })
}

// Create writes a file if no file has its name. Otherwise it returns fs.ErrExist; with Sync, the
// directory has been synced then too, so the existing file's name survives a loss of power.
func Create(path string, data []byte, o Options) error {
	var exists error
	err := o.put(path, writeBytes(data), func(draft string) error {
		err := os.Link(draft, path)
		if errors.Is(err, fs.ErrExist) {
			exists, err = err, nil
		}
		// The file already has its name, so a draft that cannot be removed is not an error.
		_ = os.Remove(draft)
		return err
	})
	if err != nil {
		return err
	}
	return exists
}

// SyncDir syncs a directory, so that the names in it survive a loss of power.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// writeBytes returns a function that writes data.
func writeBytes(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// put writes a draft and gives it its name. After a failure there is no draft and the file is
// unchanged, except if syncing the directory failed: then the file may be old or new.
func (o Options) put(path string, write func(io.Writer) error, name func(draft string) error) error {
	dir := filepath.Dir(path)
	f, err := o.createDraft(path)
	if err != nil {
		return err
	}
	if err := errors.Join(o.writeDraft(f, write), o.step("close", f.Close)); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := o.step("name", func() error { return name(f.Name()) }); err != nil {
		if removeErr := os.Remove(f.Name()); !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
		return err
	}
	if !o.Sync {
		return nil
	}
	return o.step("sync directory", func() error { return SyncDir(dir) })
}

// createDraft creates the draft, and never opens an existing file: an attacker who could put a link
// or a file in its place would choose which file we write, or read our data.
func (o Options) createDraft(path string) (*os.File, error) {
	draft := o.Draft
	if draft == "" {
		draft = filepath.Base(path) + ".new"
	}
	if strings.Contains(draft, "*") {
		return os.CreateTemp(filepath.Dir(path), draft)
	}
	draft = filepath.Join(filepath.Dir(path), draft)
	if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(draft, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
}

// writeDraft writes the content, sets the mode and syncs, as the options require.
func (o Options) writeDraft(f *os.File, write func(io.Writer) error) error {
	if err := o.step("write", func() error { return write(f) }); err != nil {
		return err
	}
	if o.Mode != 0 {
		if err := f.Chmod(o.Mode); err != nil {
			return err
		}
	}
	if !o.Sync {
		return nil
	}
	return o.step("sync", f.Sync)
}

// step runs one step of a write, unless the test hook Step fails it.
func (o Options) step(name string, do func() error) error {
	if o.Step != nil {
		if err := o.Step(name); err != nil {
			if name == "close" {
				return errors.Join(err, do()) // close it, or the descriptor leaks
			}
			return err
		}
	}
	return do()
}
