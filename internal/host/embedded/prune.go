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

// minIdle is how long a program must be unused before it is removed.
const minIdle = 24 * time.Hour

// Prune removes the programs of earlier versions from dir and returns their paths. It keeps a
// program that was requested within a day, that a running process has requested, that a process
// runs, maps or has open, or that keep reports as needed: a snapshot may name its guest's file
// while no process has it. A program whose use cannot be determined is kept, and Prune returns an
// error.
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
		if err != nil || !info.Mode().IsRegular() || time.Since(info.ModTime()) < minIdle || !isProgramName(e.Name()) || keep(path) {
			continue
		}
		old[identityOf(info)] = path
	}
	if len(old) == 0 {
		return nil, nil
	}
	if err := dropUsed(old); err != nil {
		return nil, fmt.Errorf("prune programs: %w", err)
	}
	var failed []error
	for _, path := range old {
		ok, err := remove(path)
		if ok {
			removed = append(removed, path)
		}
		failed = append(failed, err)
	}
	return removed, errors.Join(failed...)
}

// isProgramName reports whether a name has the form that nameOf gives a program, or that of a file
// which a crash in install left. Other files in the directory are not touched.
func isProgramName(name string) bool {
	if strings.HasPrefix(name, draftPrefix) {
		return true
	}
	nameAndSize, sum, _ := cutLast(name)
	_, size, ok := cutLast(nameAndSize)
	if _, err := strconv.ParseUint(size, 10, 63); err != nil || !ok || len(sum) != 32 {
		return false
	}
	return strings.Trim(sum, "0123456789abcdef") == ""
}

// cutLast cuts s at its last hyphen.
func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '-')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// remove deletes one program unless a process is using it, and reports whether it did.
func remove(path string) (removed bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("prune programs: %w", err)
	}
	defer f.Close()
	// The lock is held until the name is removed. A process that requests the program now waits for
	// the lock, and then finds that it has to write the program again.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		return false, fmt.Errorf("prune programs: lock %s: %w", path, err)
	}
	// Another process may have requested it since the listing.
	if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) < minIdle {
		return false, nil
	}
	if err := os.Remove(path); err != nil {
		return false, fmt.Errorf("prune programs: %w", err)
	}
	return true, nil
}

// identity identifies a file independent of its name, because sandboxes see their programs under
// other names.
type identity struct{ device, inode uint64 }

func identityOf(info fs.FileInfo) identity {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{s.Dev, s.Ino}
}

// dropUsed removes from the list the programs that some process is using.
func dropUsed(list map[identity]string) error {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		if err := dropUsedBy(list, filepath.Join("/proc", p.Name())); err != nil {
			return err
		}
	}
	return nil
}

// dropUsedBy removes from the list the programs that one process runs, has open or has mapped.
func dropUsedBy(list map[identity]string, process string) error {
	links := []string{"exe"}
	fds, err := os.ReadDir(filepath.Join(process, "fd"))
	if err := inspectionError(err); err != nil {
		return err
	}
	for _, fd := range fds {
		links = append(links, filepath.Join("fd", fd.Name()))
	}
	for _, link := range links {
		if info, err := os.Stat(filepath.Join(process, link)); err == nil {
			delete(list, identityOf(info))
		}
	}
	maps, err := os.Open(filepath.Join(process, "maps"))
	if err != nil {
		return inspectionError(err)
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		// The fields are: address, permissions, offset, device, inode, path.
		if f := strings.Fields(lines.Text()); len(f) >= 5 {
			if inode, err := strconv.ParseUint(f[4], 10, 64); err == nil {
				dropInode(list, inode)
			}
		}
	}
	return inspectionError(lines.Err())
}

// dropInode removes from the list the programs with an inode number. It ignores the device, because
// some file systems show another device in /proc/PID/maps than stat returns.
func dropInode(list map[identity]string, inode uint64) {
	for id := range list {
		if id.inode == inode {
			delete(list, id)
		}
	}
}

// inspectionError returns the error of inspecting a process, or nil if the error does not matter. A
// process that has ended uses no file. A process that we may not inspect belongs to another user,
// while sandboxes of this directory run as this user. If it uses a file all the same, it keeps the
// deleted file; only a new start from the same path would fail.
func inspectionError(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
