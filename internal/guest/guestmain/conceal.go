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

// conceal removes the placeholders of hidden files and marks the files in git's index. No program
// has run yet, so everything that exists comes from the host through the sandbox's overlay.
func conceal(root string, cfg guest.Config) error {
	for _, name := range cfg.Absent {
		if err := removePlaceholder(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	for _, s := range cfg.Skip {
		if err := markSkipped(filepath.Join(root, s.Index), s.Paths); err != nil {
			return fmt.Errorf("mark hidden files in %s: %w", s.Index, err)
		}
	}
	return nil
}

// removePlaceholder removes the placeholder of a hidden file or directory. If the placeholder is
// not empty, it is the host's own file, which would become visible.
func removePlaceholder(name string) error {
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

// markSkipped marks tracked files in the sandbox's copy of a git index. An index that cannot be
// parsed is left unchanged: git then only reports the files as deleted, and the export of changes
// is checked independently.
func markSkipped(name string, paths [][]byte) error {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	idx, err := index.Parse(data)
	if err != nil {
		return nil
	}
	if idx.Skip(below(paths)) == 0 {
		return nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	// Write in place to preserve owner, mode and time. Otherwise git would consider the index newer
	// than the files.
	if err := os.WriteFile(name, idx.Bytes(), 0); err != nil {
		return err
	}
	return os.Chtimes(name, info.ModTime(), info.ModTime())
}

// below returns a function that reports whether a tracked file is at or below one of the paths.
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
