package gvisor_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine/gvisor/gvisortest"
)

// become is a program that makes the system call with which the guest changes the identity of its
// kernel. For programs, the call must fail with EPERM.
const become = `python3 -c '
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
sys.exit(1 if (libc.syscall(1999, b"other", 5, 1), ctypes.get_errno()) == (-1, 1) else 0)'`

// noGroup stands for the group of a process that is in none of our groups.
const noGroup = ""

// groupsOf lists, for each hierarchy in which sandboxes below a directory have groups, the groups
// of their processes.
func groupsOf(t testing.TB, dir string) map[string][]string {
	t.Helper()
	found := map[string]map[string]bool{}
	for _, pid := range gvisortest.Processes(t, dir) {
		data, err := os.ReadFile("/proc/" + pid + "/cgroup")
		if err != nil {
			continue // the process has ended
		}
		for line := range strings.Lines(string(data)) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(parts) != 3 {
				t.Fatalf("a line of /proc/PID/cgroup reads %q", line)
			}
			if found[parts[1]] == nil {
				found[parts[1]] = map[string]bool{}
			}
			group := noGroup
			if strings.Contains(parts[2], "/crannog/") {
				group = parts[2]
			}
			found[parts[1]][group] = true
		}
	}
	groups := map[string][]string{}
	for hierarchy, names := range found {
		if list := slices.Sorted(maps.Keys(names)); !slices.Equal(list, []string{noGroup}) {
			groups[hierarchy] = list
		}
	}
	return groups
}
