package enginetest

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

var leakRules = []rule{
	// P8
	{"leaks/cycles-leave-nothing", func(t *testing.T, c *Config) {
		dir := t.TempDir()
		e := c.Open(t, dir)
		// The first box may make what all later ones share.
		cycle(t, c, e)
		before := census(t, dir)
		for range c.Cycles {
			cycle(t, c, e)
		}
		var after map[string]int
		eventually(t, "everything is gone", func() bool {
			after = census(t, dir)
			return len(grown(before, after)) == 0 || c.Cycles == 0
		})
		if left := grown(before, after); len(left) > 0 {
			t.Errorf("after %d boxes: %v", c.Cycles, left)
		}
	}},
	{"leaks/the-census-sees-a-box", func(t *testing.T, c *Config) {
		dir := t.TempDir()
		e := c.Open(t, dir)
		cycle(t, c, e)
		before := census(t, dir)
		c.start(t, e)
		if left := grown(before, census(t, dir)); len(left) == 0 {
			t.Error("a running box is invisible to the census that the leak rule trusts")
		}
	}},
}

func cycle(t testing.TB, c *Config, e engine.Engine) {
	t.Helper()
	b := c.start(t, e)
	b.want(t, "echo x", "x")
	b.client.CloseIdleConnections()
	if err := e.Remove(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
}

// census counts what a box could leave behind on this host and in this
// process.
func census(t testing.TB, dir string) map[string]int {
	t.Helper()
	n := map[string]int{"goroutines": runtime.NumGoroutine()}
	count := func(kind, path string, is func(name string) bool) {
		entries, err := os.ReadDir(path)
		if err != nil {
			return
		}
		for _, e := range entries {
			if is(e.Name()) {
				n[kind]++
			}
		}
	}
	count("descriptors", "/proc/self/fd", func(string) bool { return true })
	count("processes", "/proc", func(pid string) bool { return isBoxProcess(pid, dir) })
	for _, base := range []string{"/sys/fs/cgroup/crannog", "/sys/fs/cgroup/memory/crannog", "/sys/fs/cgroup/cpu/crannog", "/sys/fs/cgroup/pids/crannog"} {
		count("groups", base, func(name string) bool {
			return strings.HasPrefix(name, "t") || strings.HasPrefix(name, "k")
		})
	}
	err := filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { n["files"]++; return nil })
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

// isBoxProcess knows gVisor's and our own inner processes of this directory
// by their arguments.
func isBoxProcess(pid, dir string) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%s/cmdline", pid))
	if err != nil {
		return false
	}
	line := string(data)
	return (strings.HasPrefix(line, "runsc-") || strings.HasPrefix(line, "crannog-")) &&
		(strings.Contains(line, dir) || strings.HasPrefix(line, "crannog-boot"))
}

func grown(before, after map[string]int) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if after[k] > before[k] {
			out = append(out, fmt.Sprintf("%s: %d, before %d", k, after[k], before[k]))
		}
	}
	return out
}
