// Package inside owns the program that the engine docker starts in a container to write the files
// that the sandbox has changed. It is a role of the guest's program.
package inside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine/linux/overlaytar"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/host/reexec"
)

// Exit statuses of the program.
const (
	StatusFailed     = 1
	StatusTooLarge   = 3
	StatusUnreadable = 4
)

// MaxSize bounds the size of the files of an archive, including their holes. Every reader of an
// archive has to read all of it, and a sandbox can make a file of any size at no cost.
const MaxSize = 256 << 30

// Role is the role of the program. Its arguments are those of Arguments.
func Role() reexec.Role {
	return reexec.Role{Match: func(args []string) bool { return len(args) > 1 && args[1] == guestboot.FilesRole }, Run: run}
}

// Arguments returns the arguments of the guest's program for an archive of the files in dirs.
func Arguments(guest string, dirs []string) []string {
	return append([]string{guest, guestboot.FilesRole}, dirs...)
}

// run writes the archive to standard output. Standard input has the paths of the files that were
// copied into the container before its start, each followed by a zero byte.
func run() {
	// A program that could trace this one could change what it writes.
	err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err == nil {
		err = write(os.Stdin, os.Stdout, os.Args[2:], guestboot.FillDir)
	}
	if err == nil {
		return
	}
	_, _ = fmt.Fprintln(os.Stderr, err) // the status reports the failure too
	switch {
	case errors.Is(err, overlaytar.ErrTooLarge):
		os.Exit(StatusTooLarge)
	case errors.Is(err, fs.ErrPermission):
		os.Exit(StatusUnreadable)
	}
	os.Exit(StatusFailed)
}

// write writes the files below dirs as a tar. The directory filled has what the guest has copied to
// the root at its start: a copy that is unchanged is left out.
func write(in io.Reader, out io.Writer, dirs []string, filled string) error {
	list, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read the names of the first files: %w", err)
	}
	initial := strings.FieldsFunc(string(list), func(r rune) bool { return r == 0 })
	copied, err := filesBelow(filled)
	if err != nil {
		return err
	}
	isCopy := map[string]bool{}
	for _, name := range copied {
		isCopy[name] = true
	}
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	var layers []overlaytar.Layer
	defer func() {
		for _, l := range layers {
			_ = l.Upper.Close() // nothing is written to it
		}
	}()
	for _, dir := range dirs {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return err
		}
		layers = append(layers, overlaytar.Layer{Upper: root, Path: strings.TrimPrefix(dir, "/")})
	}
	return overlaytar.Write(context.Background(), out, layers, overlaytar.Options{
		Owner:   func(uid, gid int) (int, int) { return uid, gid },
		Initial: slices.Concat(initial, copied),
		// A path that the policy hides or protects is a mount of its own. No program can have changed
		// it, and a sandbox that starts with the archive has its own.
		Skip: func(name string) bool {
			return mounts["/"+name] || isCopy[name] && equalFiles(filepath.Join(filled, name), "/"+name)
		},
		Most: MaxSize,
	})
}

// filesBelow lists the paths below a directory that the guest has copied. Those that it
// could not read are not copies.
func filesBelow(dir string) (list []string, err error) {
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return fs.SkipDir
		}
		if err != nil || name == dir {
			return err
		}
		if entry.Type() == 0 && unix.Access(name, unix.R_OK) != nil {
			return nil
		}
		list = append(list, name[len(dir)+1:])
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return list, err
}

// equalFiles reports whether two paths are links with the same target, or regular files with the
// same content and permissions.
func equalFiles(a, b string) bool {
	first, err := os.Lstat(a)
	if err != nil {
		return false
	}
	second, err := os.Lstat(b)
	if err != nil || first.Mode() != second.Mode() || first.Mode().IsRegular() && first.Size() != second.Size() {
		return false
	}
	switch first.Mode().Type() { //nolint:exhaustive // other types are never equal
	case fs.ModeSymlink:
		one, err := os.Readlink(a)
		other, otherErr := os.Readlink(b)
		return err == nil && otherErr == nil && one == other
	case 0:
		one, err := os.ReadFile(a)
		other, otherErr := os.ReadFile(b)
		return err == nil && otherErr == nil && bytes.Equal(one, other)
	}
	return false
}

// mountPoints returns the paths at which something is mounted.
func mountPoints() (map[string]bool, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	points := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points[unescape.Replace(fields[4])] = true
		}
	}
	return points, nil
}

// unescape decodes the octal escapes in the kernel's list of mounts.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
