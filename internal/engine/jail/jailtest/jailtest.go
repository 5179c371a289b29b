// Package jailtest counts the resources of the engine jail on this host for a state directory, so
// that tests detect leaks.
package jailtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine/jail"
	"github.com/crannog/crannog/internal/engine/jail/setup"
)

// Residue counts the engine's resources for a state directory: processes of its sandboxes, their
// ranges of IDs and control groups.
func Residue(t testing.TB, dir string) map[string]int {
	t.Helper()
	slots, _ := os.ReadDir(filepath.Join(dir, "jail", ".ids"))
	groups := map[string]bool{}
	for _, pattern := range []string{"/sys/fs/cgroup/crannog/jail-*", "/sys/fs/cgroup/*/crannog/jail-*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range found {
			if _, err := os.Stat(filepath.Join(dir, "jail", strings.TrimPrefix(filepath.Base(group), "jail-"))); err == nil {
				groups[group] = true
			}
		}
	}
	return map[string]int{"processes": len(Processes(t, dir)), "ranges of IDs": len(slots), "groups": len(groups)}
}

// Processes lists the first processes of the sandboxes below a state directory.
func Processes(t testing.TB, dir string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	want := setup.Arg0 + "\x00" + jail.Tag(filepath.Join(dir, "jail")) + "-"
	for _, path := range files {
		if data, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(data), want) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// Owner lists the engine's resources for tests of a whole server.
type Owner struct{}

// Processes is the function Processes.
func (Owner) Processes(t testing.TB, state string) []string {
	t.Helper()
	return Processes(t, state)
}

// Files lists the directories of sandboxes and their ranges of IDs.
func (Owner) Files(state string) []string {
	found, _ := filepath.Glob(filepath.Join(state, "jail", "[a-z0-9]*")) // an error means a malformed pattern
	slots, _ := filepath.Glob(filepath.Join(state, "jail", ".ids", "*"))
	return append(found, slots...)
}

// Shared returns false, because the engine has no mounts outside of its sandboxes.
func (Owner) Shared(string) bool { return false }
