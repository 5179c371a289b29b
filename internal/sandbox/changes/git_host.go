package changes

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/gitrepo/gitfile"
	"github.com/crannog/crannog/internal/filetree/gitrepo/objects"
)

// sumOf returns the SHA-256 of a text in hexadecimal.
func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// maxAlternates limits the number of object directories that repositories borrow from.
const maxAlternates = 16

// hostObjects opens the objects of a host repository and of its alternates. Missing ones are left
// out.
func hostObjects(before *os.Root, dir string) (found []objects.Files, undo func() error, err error) {
	var open []*os.Root
	undo = func() error {
		var errs []error
		for _, r := range open {
			errs = append(errs, r.Close())
		}
		return errors.Join(errs...)
	}
	root, err := before.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, undo, nil
	}
	if err != nil {
		return nil, undo, err
	}
	open = append(open, root)
	for i := 0; i < len(open); i++ {
		found = append(found, objects.Root{Root: open[i]})
		text, err := gitfile.Read(open[i], "info/alternates", gitfile.MaxLink)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			to := strings.TrimRight(line, "\n")
			if to == "" || to[0] == '#' || len(open) == maxAlternates {
				continue
			}
			if !path.IsAbs(to) {
				to = filepath.Join(open[i].Name(), to)
			}
			if root, err := os.OpenRoot(to); err == nil {
				open = append(open, root)
			}
		}
	}
	return found, undo, nil
}

// knownNames returns the commits that the references of a host repository name.
func knownNames(before *os.Root, dir string) ([]string, error) {
	var known []string
	add := func(file, text string) {
		for _, id := range refNames(file, text) {
			known = append(known, id)
		}
	}
	heads := []string{"HEAD"}
	if names, err := readDirNames(before, path.Join(dir, "worktrees")); err == nil {
		for _, name := range names {
			heads = append(heads, path.Join("worktrees", name, "HEAD"))
		}
	}
	for _, name := range append(heads, "packed-refs") {
		if text, err := gitfile.Read(before, path.Join(dir, name), maxRefFile); err == nil {
			add(name, string(text))
		}
	}
	err := fs.WalkDir(before.FS(), path.Join(dir, "refs"), func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			return nil
		case err != nil:
			return err
		case len(known) > maxKnownNames:
			return fault.New(fault.Exhausted, "git_too_many_refs", "the repository has more references than the limit")
		case d.Type().IsRegular():
			if text, err := gitfile.Read(before, name, gitfile.MaxLink); err == nil {
				add(name, string(text))
			}
		}
		return nil
	})
	return known, err
}

func readDirNames(before *os.Root, name string) ([]string, error) {
	d, err := before.Open(name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}
