package guestmain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/filetree/gitrepo/index"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/probe"
)

// conceal makes hidden files absent, and tells git so. No program has run yet: everything that
// exists is the host's, seen through the sandbox's overlay.
func conceal(root string, cfg guest.Config) error {
	for _, name := range cfg.Absent {
		if err := remove(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	for _, s := range cfg.Skip {
		if err := skip(filepath.Join(root, s.Index), s.Paths); err != nil {
			return fmt.Errorf("mark hidden files in %s: %w", s.Index, err)
		}
	}
	return nil
}

// remove removes the placeholder of a hidden file or directory. One that is not empty is the host's
// own, which only the engine's mask keeps out of reach of later programs.
func remove(name string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("hide %s: %w", name, err)
	}
	switch {
	case info.Mode().IsRegular() && info.Size() == 0:
		err = os.Remove(name)
	case info.IsDir():
		if err = unix.Rmdir(name); errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%s%q", probe.Failure, "the hidden directory "+name+" shows files")
		}
	default:
		return fmt.Errorf("%s%q", probe.Failure, "the hidden file "+name+" can be read")
	}
	if err != nil {
		return fmt.Errorf("hide %s: %w", name, err)
	}
	return nil
}

// skip marks tracked files in the sandbox's copy of an index. An index that cannot be marked is
// left alone: git then reports the files as deleted, and changes that come out are checked all the
// same.
func skip(name string, paths [][]byte) error {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	x, err := index.Parse(data)
	if err != nil {
		return nil
	}
	if x.Skip(below(paths)) == 0 {
		return nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	// Written in place: the file keeps its owner, its mode and its time, so that git does not take
	// it for newer than the files in it.
	if err := os.WriteFile(name, x.Bytes(), 0); err != nil {
		return err
	}
	return os.Chtimes(name, info.ModTime(), info.ModTime())
}

// below reports whether a tracked file is one of the paths or below one.
func below(paths [][]byte) func(name string) bool {
	set := make(map[string]bool, len(paths))
	for _, p := range paths {
		set[string(p)] = true
	}
	return func(name string) bool {
		for end := len(name); end > 0; end = strings.LastIndexByte(name[:end], '/') {
			if set[name[:end]] {
				return true
			}
		}
		return false
	}
}
