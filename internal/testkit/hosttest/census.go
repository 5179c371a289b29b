package hosttest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Census returns what Host returns, and also what gVisor has for a state directory: processes and
// control groups.
func Census(t testing.TB, dir string) map[string]int {
	t.Helper()
	n := Host(t, dir)
	n["processes"], n["groups"] = len(BoxProcesses(t, dir)), BoxGroups(dir)
	return n
}

// Host counts what sandboxes of a state directory could leave behind, for any engine: goroutines
// and descriptors of this process, mounts and named sockets of this host, and files in each
// directory of the state.
func Host(t testing.TB, dir string) map[string]int {
	t.Helper()
	n := map[string]int{"goroutines": runtime.NumGoroutine(), "descriptors": len(Descriptors(t, os.Getpid()))}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed during the walk
		}
		if err != nil || path == dir {
			return err
		}
		in, _, _ := strings.Cut(strings.TrimPrefix(path, dir+"/"), "/")
		n["files: "+in]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"/proc/self/mountinfo", "/proc/net/unix"} {
		data, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		n[table] = strings.Count(string(data), dir)
	}
	return n
}

// Grown lists the counts that are higher in a later census.
func Grown(before, after map[string]int) (list []string) {
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if after[k] > before[k] {
			list = append(list, fmt.Sprintf("%s: %d, before %d", k, after[k], before[k]))
		}
	}
	return list
}

// BoxProcesses lists the processes that run for sandboxes below a state directory: the arguments of
// gVisor's processes name it. A child that boots a sandbox belongs to the process that started it;
// one whose parent has ended is listed.
func BoxProcesses(t testing.TB, dir string) (pids []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if ours, _ := box(e.Name(), dir); ours {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

// box reports whether a process runs for a sandbox of a state directory, or for a sandbox of
// another one.
func box(pid, dir string) (ours, others bool) {
	line, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	if err != nil {
		return false, false // it is not a process, or has ended
	}
	switch text := string(line); {
	case strings.HasPrefix(text, "crannog-boot"):
		ours = bootsFor(pid, dir)
		return ours, !ours
	case strings.HasPrefix(text, "runsc-"):
		return strings.Contains(text, dir), !strings.Contains(text, dir)
	}
	return false, false
}

// bootsFor reports whether a child that boots a sandbox may do so for a state directory: this
// process or one that names the directory started it, or its parent has ended, so that an ancestor
// of this process or init adopted it.
func bootsFor(pid, dir string) bool {
	parent := parentOf(pid)
	for self := strconv.Itoa(os.Getpid()); self != ""; self = parentOf(self) {
		if parent == self {
			return true
		}
	}
	for _, file := range []string{"cmdline", "environ"} {
		data, err := os.ReadFile(filepath.Join("/proc", parent, file))
		if err != nil || strings.Contains(string(data), dir) {
			return true // an ended parent does not prove that it is another directory's
		}
	}
	return parent == ""
}

// parentOf returns a process's parent, or "" for init and for one that ended.
func parentOf(pid string) string {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return ""
	}
	// The name in parentheses may contain anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 2 || fields[1] == "0" {
		return ""
	}
	return fields[1]
}

// BoxGroups counts the control groups of sandboxes. It leaves out those in which a sandbox of
// another state directory runs, because other tests may run on this host.
func BoxGroups(dir string) (n int) {
	for _, pattern := range []string{"/sys/fs/cgroup/crannog/*", "/sys/fs/cgroup/*/crannog/*"} {
		found, _ := filepath.Glob(pattern) // Glob fails only for malformed patterns
		for _, group := range found {
			procs, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
			if err == nil && !slices.ContainsFunc(strings.Fields(string(procs)), func(pid string) bool {
				_, others := box(pid, dir)
				return others
			}) {
				n++
			}
		}
	}
	return n
}
