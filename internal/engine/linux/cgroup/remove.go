package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// removeTimeout bounds how long the kernel may take to release processes that were just killed.
const removeTimeout = 10 * time.Second

// Remove deletes the group and kills the processes in it. If the server died while it started a
// process, no record names that process, and its arguments may not identify it yet. If the group
// does not exist, Remove succeeds.
func (g *Group) Remove() error {
	var errs []error
	for _, dir := range g.Dirs {
		errs = append(errs, removeDir(dir))
	}
	return errors.Join(errs...)
}

// removeDir removes a directory of a group and kills the processes in it.
func removeDir(dir string) error {
	deadline := time.Now().Add(removeTimeout)
	for wait := time.Millisecond; ; wait = min(wait*2, 50*time.Millisecond) {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		remaining := members(dir)
		if time.Now().After(deadline) {
			return fmt.Errorf("cgroup: %w (processes %v)", err, remaining)
		}
		for _, pid := range remaining {
			kill(dir, pid)
		}
		time.Sleep(wait)
	}
}

// members lists the processes of a group. In version 1 a single thread can be in a group without
// its process, as the server's threads are while they start a sandbox. Such a process is not a
// member.
func members(dir string) []int {
	pids := numbers(filepath.Join(dir, "cgroup.procs"))
	threads, err := os.ReadFile(filepath.Join(dir, "tasks"))
	if err != nil {
		return pids // version 2
	}
	lines := strings.Fields(string(threads))
	return slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() || !slices.Contains(lines, strconv.Itoa(pid)) })
}

// numbers returns the positive numbers in a file.
func numbers(path string) []int {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var all []int
	for field := range strings.FieldsSeq(string(data)) {
		if n, err := strconv.Atoi(field); err == nil && n > 0 {
			all = append(all, n)
		}
	}
	return all
}

// kill kills a member of a group.
func kill(dir string, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	// The PID may have been reused between the check and the open.
	if slices.Contains(members(dir), pid) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // the caller checks whether the process has ended
	}
}

// RemoveNamed deletes what exists of a sandbox's group, for a creation that failed before its
// record could list the directories.
func (t *Tree) RemoveNamed(id string) error {
	g := Group{Dirs: map[string]string{}}
	if t.unified != "" {
		g.Dirs[unified] = filepath.Join(t.unified, id)
	}
	for controller, parent := range t.legacy {
		g.Dirs[controller] = filepath.Join(parent, id)
	}
	if t.freezer != "" {
		g.Dirs[freezer] = filepath.Join(t.freezer, id)
	}
	return g.Remove()
}
