package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hostDir writes below one directory of the host. Every name goes through
// os.Root, so that neither a name like ../../etc/passwd nor a link planted
// below the directory leads out of it.
type hostDir struct {
	root *os.Root
	top  string // within root
	// modes of directories, set last: one without the right to write would
	// keep its own content out.
	modes []dirMode
}

type dirMode struct {
	name string
	perm fs.FileMode
}

// hostTarget opens the directory in which the copy's top is made.
func hostTarget(to, base string) (target, error) {
	full, err := filepath.Abs(to)
	if err != nil {
		return nil, fail("write "+to, err)
	}
	info, err := os.Stat(full)
	switch {
	case err == nil && info.IsDir():
		return openHost(full, first(base, "."))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fail("write "+to, err)
	case strings.HasSuffix(to, "/"):
		return nil, fail("write "+to, errors.New("there is no such directory"))
	}
	return openHost(filepath.Dir(full), filepath.Base(full))
}

func openHost(dir, top string) (target, error) {
	// The sandbox may have chosen the name.
	if !filepath.IsLocal(top) {
		return nil, fail("write "+dir, fmt.Errorf("%q is not a name within it", top))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fail("write "+dir, err)
	}
	return &hostDir{root: root, top: top}, nil
}

func (h *hostDir) mkdir(name string, perm fs.FileMode) error {
	full := filepath.Join(h.top, filepath.FromSlash(name))
	if full == "." {
		return nil
	}
	err := h.root.Mkdir(full, 0o700)
	if errors.Is(err, fs.ErrExist) {
		info, statErr := h.root.Lstat(full)
		if statErr != nil {
			return statErr
		}
		if !info.IsDir() {
			return err
		}
		return nil
	}
	if err == nil {
		h.modes = append(h.modes, dirMode{full, perm})
	}
	return err
}

// write makes the file anew under another name and moves it, so that neither
// a link nor another name of an old file is written through, and a copy that
// breaks off leaves the old file.
func (h *hostDir) write(name string, r io.Reader, perm fs.FileMode) (err error) {
	full := filepath.Join(h.top, filepath.FromSlash(name))
	part := filepath.Join(filepath.Dir(full), fmt.Sprintf(".crannog-%d.part", os.Getpid()))
	f, err := h.root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.root.Remove(part))
		}
	}()
	_, err = io.Copy(f, r)
	// No set-uid bits: whoever runs inside chose the mode.
	if err = errors.Join(err, f.Chmod(perm.Perm()), f.Close()); err != nil {
		return err
	}
	return h.root.Rename(part, full)
}

func (h *hostDir) at() (id, path string) { return "", filepath.Join(h.root.Name(), h.top) }

func (h *hostDir) finish() error {
	var errs []error
	for _, v := range slices.Backward(h.modes) {
		errs = append(errs, h.root.Chmod(v.name, v.perm))
	}
	return errors.Join(errs...)
}

func (h *hostDir) close() {
	// Every file was closed, and its error told, before.
	_ = h.root.Close()
}
