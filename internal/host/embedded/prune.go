package embedded

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// idle is how long a program must have been unused before it is removed.
const idle = 24 * time.Hour

// Prune removes the programs of earlier versions from dir and returns their
// paths. It leaves what was asked for within a day, what a process has asked
// for and still runs, what a process runs, maps or has open, and what keep
// says is needed: a snapshot may name its guest's file while no process has
// it. What cannot be found out is left as it is, and is an error.
func Prune(dir string, keep func(path string) bool) (removed []string, err error) {
	if keep == nil {
		return nil, errors.New("prune programs: keep is nil")
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("prune programs: %w", err)
	}
	old := map[identity]string{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || time.Since(info.ModTime()) < idle || !ours(e.Name()) || keep(path) {
			continue
		}
		old[identityOf(info)] = path
	}
	if len(old) == 0 {
		return nil, nil
	}
	if err := dropRunning(old); err != nil {
		return nil, fmt.Errorf("prune programs: %w", err)
	}
	var failed []error
	for _, path := range old {
		gone, err := remove(path)
		if gone {
			removed = append(removed, path)
		}
		failed = append(failed, err)
	}
	return removed, errors.Join(failed...)
}

// ours reports whether a name is one that nameOf makes, or that a crash in the
// middle of install left.
func ours(name string) bool {
	if strings.HasPrefix(name, newFile) {
		return true
	}
	rest, sum, _ := cutLast(name)
	_, size, ok := cutLast(rest)
	if _, err := strconv.ParseUint(size, 10, 63); err != nil || !ok || len(sum) != 32 {
		return false
	}
	return strings.Trim(sum, "0123456789abcdef") == ""
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '-')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// remove drops one program unless somebody has it in use.
func remove(path string) (gone bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("prune programs: %w", err)
	}
	defer f.Close()
	// Held until the name is gone: a process that asks for the program now waits,
	// then finds that it has to write it again.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		return false, fmt.Errorf("prune programs: lock %s: %w", path, err)
	}
	// It may have been asked for since it was listed.
	if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) < idle {
		return false, nil
	}
	if err := os.Remove(path); err != nil {
		return false, fmt.Errorf("prune programs: %w", err)
	}
	return true, nil
}

// identity is a file whatever its name is: sandboxes see theirs under others.
type identity struct{ device, inode uint64 }

func identityOf(info fs.FileInfo) identity {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{s.Dev, s.Ino}
}

// dropRunning takes out of the list what some process has.
func dropRunning(list map[identity]string) error {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		if err := dropHeld(list, filepath.Join("/proc", p.Name())); err != nil {
			return err
		}
	}
	return nil
}

// dropHeld takes out what one process runs, has open or has mapped.
func dropHeld(list map[identity]string, process string) error {
	links := []string{"exe"}
	fds, err := os.ReadDir(filepath.Join(process, "fd"))
	if err := unreadable(err); err != nil {
		return err
	}
	for _, fd := range fds {
		links = append(links, filepath.Join("fd", fd.Name()))
	}
	for _, l := range links {
		if info, err := os.Stat(filepath.Join(process, l)); err == nil {
			delete(list, identityOf(info))
		}
	}
	maps, err := os.Open(filepath.Join(process, "maps"))
	if err != nil {
		return unreadable(err)
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		// address perms offset device inode path
		if f := strings.Fields(lines.Text()); len(f) >= 5 {
			if inode, err := strconv.ParseUint(f[4], 10, 64); err == nil {
				dropInode(list, inode)
			}
		}
	}
	return unreadable(lines.Err())
}

// dropInode goes by the number alone: some file systems show another device
// in a map than in a file's own information.
func dropInode(list map[identity]string, inode uint64) {
	for id := range list {
		if id.inode == inode {
			delete(list, id)
		}
	}
}

// unreadable is the error of a look into a process that counts. One that has
// ended has nothing. One that we may not look into is somebody else's, or the
// host's: a sandbox of this directory is ours. Should it have a file all the same,
// it keeps it without its name; only a start from the same path would fail.
func unreadable(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
