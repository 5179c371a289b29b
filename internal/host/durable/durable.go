// Package durable owns how a file of ours takes its name: whole or not at all, and, where it has to
// be, so that it outlives a loss of power.
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

// Options say how a file takes its name. The zero value makes a file of mode 0600 that readers and
// crashes of the process see whole, and that a loss of power may undo.
type Options struct {
	// Draft is the name, beside the file, under which it is written. A "*" in it stands for a part
	// that no other draft has, for directories that several writers use at once; without one the
	// draft that a crash left is removed first, and the caller holds a lock. "" is the name of the
	// file with ".new" after it.
	Draft string
	// Mode is the mode of the file, whatever the umask is; 0 is 0600, less the umask.
	Mode fs.FileMode
	// Lasting has the content on the disk before the name, and the name before the call returns.
	// A file that something else refers to needs it: a key, a signature, a checkpoint.
	Lasting bool
	// Step is called before each step, unless nil: "write", "sync", "close", "name" and "sync
	// directory". Its error is that of the step. It is for tests in which a step fails or the
	// process dies.
	Step func(name string) error
}

// Replace writes a file and gives it its name, which what had it before loses.
func Replace(path string, data []byte, o Options) error {
	return ReplaceWith(path, o, bytesOf(data))
}

// ReplaceWith is Replace for content that is produced while it is written.
func ReplaceWith(path string, o Options, write func(io.Writer) error) error {
	return o.put(path, write, func(draft string) error { return os.Rename(draft, path) })
}

// Create writes a file unless there is one of its name. The error is then fs.ErrExist; the name of
// that file lasts if this one's would have.
func Create(path string, data []byte, o Options) error {
	var exists error
	err := o.put(path, bytesOf(data), func(draft string) error {
		err := os.Link(draft, path)
		if errors.Is(err, fs.ErrExist) {
			exists, err = err, nil
		}
		// The file stays under its name; a draft that cannot be removed is not worth the failure.
		_ = os.Remove(draft)
		return err
	})
	if err != nil {
		return err
	}
	return exists
}

// SyncDir makes the names in a directory outlive a loss of power.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func bytesOf(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// put writes a draft and has it named. A failure leaves no draft, and the file as it was, unless it
// is the failure to sync the directory, after which either may be found.
func (o Options) put(path string, write func(io.Writer) error, name func(draft string) error) error {
	dir := filepath.Dir(path)
	f, err := o.begin(path)
	if err != nil {
		return err
	}
	if err := errors.Join(o.fill(f, write), o.step("close", f.Close)); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := o.step("name", func() error { return name(f.Name()) }); err != nil {
		if gone := os.Remove(f.Name()); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return err
	}
	if !o.Lasting {
		return nil
	}
	return o.step("sync directory", func() error { return SyncDir(dir) })
}

// begin makes the draft, and never opens what is there: somebody who could put a link or a file of
// theirs in its place would choose where we write, or read it.
func (o Options) begin(path string) (*os.File, error) {
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

func (o Options) fill(f *os.File, write func(io.Writer) error) error {
	if err := o.step("write", func() error { return write(f) }); err != nil {
		return err
	}
	if o.Mode != 0 {
		if err := f.Chmod(o.Mode); err != nil {
			return err
		}
	}
	if !o.Lasting {
		return nil
	}
	return o.step("sync", f.Sync)
}

func (o Options) step(name string, do func() error) error {
	if o.Step != nil {
		if err := o.Step(name); err != nil {
			if name == "close" {
				return errors.Join(err, do()) // or the descriptor leaks
			}
			return err
		}
	}
	return do()
}
