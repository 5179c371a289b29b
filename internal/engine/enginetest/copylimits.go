package enginetest

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// What bounds a box and hides things from it is the host's and not part of its
// state, so it has to be put up anew around each copy.
var copyLimitRules = []rule{
	// P6
	{"state/limits-hold-in-a-copy", func(t *testing.T, c *Config) {
		e := c.Open(t, t.TempDir())
		needs(t, e, engine.LimitPIDs)
		small := func(s *engine.Spec) { s.Limits.PIDs = 64; s.Limits.DiskBytes = 64 << 20 }
		b := c.start(t, e, small)
		other := c.copyOf(t, e, save(t, b), small)
		r := other.sh(t, `python3 -c '
import os, time
n = 0
try:
    while n < 1000:
        if os.fork() == 0: time.sleep(60); os._exit(0)
        n += 1
except BlockingIOError: pass
print(n)'; pkill -f python3`)
		if n := number(t, r.stdout); n == 0 || n >= 64 {
			t.Errorf("%d processes of 64", n)
		}
		if r := other.sh(t, "head -c 100m /dev/zero > b"); r.code == 0 || !strings.Contains(r.stderr, "No space left") {
			t.Errorf("got %+v, want no space", r)
		}
	}},
	{"state/a-copys-memory-limit-is-its-own", func(t *testing.T, c *Config) {
		e := c.Open(t, t.TempDir())
		needs(t, e, engine.LimitMemory)
		b := c.start(t, e)
		saved := save(t, b)
		sibling := c.copyOf(t, e, saved)
		other := c.copyOf(t, e, saved, func(s *engine.Spec) { s.Limits.MemoryBytes = 192 << 20 })
		other.want(t, "echo well", "well")
		// Where the limit is the source's there is room, in the source and in
		// another copy.
		const large = "x = b'x' * (300 << 20); print(len(x) >> 20)"
		for _, one := range []*box{b, sibling} {
			one.want(t, `python3 -c "`+large+`"`, "300")
		}
		ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(2*hosttest.Hang))
		defer cancel()
		if r, err := other.exec(ctx, "user", "python3", "-c", large+"; import time; time.sleep(20)"); err == nil && r.code == 0 {
			t.Fatal("300 MiB fit into 192")
		}
		exit, err := e.Wait(ctx, other.id)
		if err != nil || exit.Reason != engine.ReasonOOM {
			t.Errorf("got %+v %v, want oom", exit, err)
		}
		for _, one := range []*box{b, sibling} {
			one.want(t, "echo well", "well")
		}
	}},
	// P26
	{"state/a-copy-has-a-group-of-its-own", func(t *testing.T, c *Config) {
		dir := t.TempDir()
		e := c.Open(t, dir)
		b := c.start(t, e)
		// The control: what is looked at sees the one box, in a group.
		wantGroups(t, dir, 1)
		saved := save(t, b)
		c.copyOf(t, e, saved)
		wantGroups(t, dir, 2)
		c.copyOf(t, e, saved)
		wantGroups(t, dir, 3)
		spec := c.spec(b.id)
		spec.GuestConfig = renewed(b.id, "box", guest.RolledBack)
		if err := saver(t, e).Replace(t.Context(), spec, saved); err != nil {
			t.Fatal(err)
		}
		wantGroups(t, dir, 3)
	}},
	// P4
	{"state/covers-hold-in-a-copy", func(t *testing.T, c *Config) {
		ws := coverTree(t)
		e := c.Open(t, t.TempDir())
		plain := func(s *engine.Spec) { s.Workspace = ws }
		covered := func(s *engine.Spec) { s.Hide, s.ReadOnly = toHide, toProtect }
		// The control: the search finds what is not hidden, in a copy too.
		free := c.start(t, e, plain)
		c.copyOf(t, e, save(t, free), plain, goesOn(guest.Copied)).want(t, search, "3")
		b := c.start(t, e, plain, covered)
		saved := save(t, b)
		spec := c.spec(b.id)
		for _, change := range []func(*engine.Spec){plain, covered, goesOn(guest.RolledBack)} {
			change(&spec)
		}
		other := c.copyOf(t, e, saved, plain, covered, goesOn(guest.Copied))
		if err := saver(t, e).Replace(t.Context(), spec, saved); err != nil {
			t.Fatal(err)
		}
		for _, one := range []*box{other, attach(t, e, b.id)} {
			wantHidden(t, one)
			wantProtected(t, one)
			one.want(t, "cd /workspace && cat keep && echo x > new && rm keep && cat new", "plainx")
		}
	}},
}

// goesOn gives a box the guest's configuration of a restored one.
func goesOn(how guest.Renewal) func(*engine.Spec) {
	return func(s *engine.Spec) { s.GuestConfig = renewed(s.ID, s.Hostname, how) }
}

// wantGroups wants that each process of the boxes below a directory is in a
// group of ours, and that in each hierarchy that has any there are so many.
func wantGroups(t *testing.T, dir string, want int) {
	t.Helper()
	// What was replaced takes a moment to end.
	var groups map[string][]string
	for deadline := hosttest.Deadline(); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		groups = groupsOf(t, dir)
		right := len(groups) > 0
		for _, names := range groups {
			right = right && len(names) == want && !slices.Contains(names, outside)
		}
		if right {
			return
		}
	}
	t.Fatalf("groups by hierarchy %v, want %d in each", groups, want)
}

// outside stands for the group of a process that is in none of ours.
const outside = "none of ours"

// groupsOf lists, for each hierarchy in which any of the boxes below a directory
// is in a group of ours, the groups that their processes are in.
func groupsOf(t *testing.T, dir string) map[string][]string {
	t.Helper()
	found := map[string]map[string]bool{}
	for _, pid := range hosttest.BoxProcesses(t, dir) {
		data, err := os.ReadFile("/proc/" + pid + "/cgroup")
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(data)) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(parts) != 3 {
				t.Fatalf("a line of /proc/PID/cgroup reads %q", line)
			}
			if found[parts[1]] == nil {
				found[parts[1]] = map[string]bool{}
			}
			group := outside
			if strings.Contains(parts[2], "/crannog/") {
				group = parts[2]
			}
			found[parts[1]][group] = true
		}
	}
	groups := map[string][]string{}
	for hierarchy, names := range found {
		if list := slices.Sorted(maps.Keys(names)); !slices.Equal(list, []string{outside}) {
			groups[hierarchy] = list
		}
	}
	return groups
}
