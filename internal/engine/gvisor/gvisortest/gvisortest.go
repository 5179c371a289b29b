// Package gvisortest owns counting the resources of the engine gvisor on this host for a state
// directory, so that tests detect leaks.
package gvisortest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Residue counts the engine's resources for a state directory: processes of its sandboxes,
// including those that are booting or prestarted, and control groups.
func Residue(t testing.TB, dir string) map[string]int {
	t.Helper()
	return map[string]int{"processes": len(Processes(t, dir)), "groups": Groups(dir)}
}

// Owner describes the engine to tests of a whole server.
type Owner struct{}

// Processes is the function Processes.
func (Owner) Processes(t testing.TB, state string) []string {
	t.Helper()
	return Processes(t, state)
}

// Files lists the directories and control sockets of sandboxes.
func (Owner) Files(state string) []string {
	found, _ := filepath.Glob(filepath.Join(state, "run", "[a-z0-9]*")) // an error means a malformed pattern
	sockets, _ := filepath.Glob(filepath.Join(state, "run", ".runsc", "*.sock"))
	return append(found, sockets...)
}

// Shared reports whether a line of mountinfo describes a mount that all sandboxes share and that
// remains: gVisor has one empty network namespace for all of them.
func (Owner) Shared(mount string) bool { return strings.Contains(mount, "null-netns") }

// Temporary is the pattern of files that gVisor creates outside a state directory.
const Temporary = "/tmp/runsc*"

// Processes lists the processes that run for sandboxes of a state directory. The arguments of
// gVisor's processes contain the directory. A child that boots a sandbox is listed if its parent
// belongs to the directory or has ended.
func Processes(t testing.TB, dir string) (pids []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if isOurs, _ := sandboxProcess(e.Name(), dir); isOurs {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

// sandboxProcess reports whether a process runs for a sandbox of this state directory, or for a
// sandbox of another directory.
func sandboxProcess(pid, dir string) (isOurs, isOther bool) {
	line, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	if err != nil {
		return false, false // not a process, or it has ended
	}
	switch text := string(line); {
	case strings.HasPrefix(text, "crannog-boot"):
		isOurs = bootsFor(pid, dir)
		return isOurs, !isOurs
	case strings.HasPrefix(text, "runsc-"):
		return strings.Contains(text, dir), !strings.Contains(text, dir)
	}
	return false, false
}

// bootsFor reports whether a child that boots a sandbox may belong to this state directory. That is
// the case if its parent is this process, or a process with the directory in its arguments or
// environment. It is also the case if the parent has ended, so that init or an ancestor of this
// process adopted the child.
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
			return true // with an ended parent, it may belong to this directory
		}
	}
	return parent == ""
}

// parentOf returns a process's parent, or "" for init and for an ended process.
func parentOf(pid string) string {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return ""
	}
	// The name in parentheses may contain any character.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 2 || fields[1] == "0" {
		return ""
	}
	return fields[1]
}

// Groups counts the control groups of sandboxes. It excludes groups with processes of sandboxes of
// other state directories, because other tests may run on this host.
func Groups(dir string) (n int) {
	for _, pattern := range []string{"/sys/fs/cgroup/crannog/*", "/sys/fs/cgroup/*/crannog/*"} {
		found, _ := filepath.Glob(pattern) // Glob fails only for malformed patterns
		for _, group := range found {
			procs, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
			if err == nil && !slices.ContainsFunc(strings.Fields(string(procs)), func(pid string) bool {
				_, isOther := sandboxProcess(pid, dir)
				return isOther
			}) {
				n++
			}
		}
	}
	return n
}
