package servetest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine/gvisor/gvisortest"
	"github.com/crannog/crannog/internal/engine/jail/jailtest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// resources lists what an engine has on this host for a state directory.
type resources interface {
	// Processes lists the IDs of the processes that run for sandboxes.
	Processes(t testing.TB, state string) []string
	// Files lists the files that exist only while a sandbox exists.
	Files(state string) []string
	// Shared reports whether a line of mountinfo describes a mount that remains after the last
	// sandbox.
	Shared(mount string) bool
}

// engines holds the engines on which a server's sandboxes may run.
var engines = []resources{gvisortest.Owner{}, jailtest.Owner{}}

// Processes counts the processes that run for sandboxes below a state directory.
func Processes(t testing.TB, state string) (n int) {
	t.Helper()
	for _, e := range engines {
		n += len(e.Processes(t, state))
	}
	return n
}

// NothingLeft waits until the sandboxes of a state directory have no processes, directories,
// sockets or mounts left, and none of the named control groups exists.
func NothingLeft(t testing.TB, state string, ids ...string) {
	t.Helper()
	hosttest.EventuallyNoError(t, func() error {
		if n, left := Processes(t, state), leftovers(t, state, ids); n > 0 || len(left) > 0 {
			return fmt.Errorf("left: %d processes, %v", n, left)
		}
		return nil
	})
}

// leftovers lists the files, mounts and control groups that sandboxes have left.
func leftovers(t testing.TB, state string, ids []string) (left []string) {
	t.Helper()
	for _, e := range engines {
		left = append(left, e.Files(state)...)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		shared := slices.ContainsFunc(engines, func(e resources) bool { return e.Shared(line) })
		if strings.Contains(line, state) && !shared {
			left = append(left, strings.TrimSpace(line))
		}
	}
	return append(left, Groups(ids...)...)
}

// Groups lists the control groups that are named after sandboxes.
func Groups(ids ...string) []string {
	var found []string
	// A group may disappear during the check, which is what the test waits for.
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(d.Name(), id) }) {
			found = append(found, path)
		}
		return nil
	})
	return found
}
