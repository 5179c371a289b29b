package enginetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// copyLimitRules check the limits and hidden paths of copies. They are enforced on the host and are
// not part of a saved state, so they must be set up again for each copy.
var copyLimitRules = []rule{
	// P6 of docs/reference/promises.md
	{"state/limits-hold-in-a-copy", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
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
			t.Errorf("%d processes could be started, want 1 to 63", n)
		}
		if r := other.sh(t, "head -c 100m /dev/zero > b"); r.code == 0 || !strings.Contains(r.stderr, "No space left") {
			t.Errorf("100 MiB on a disk of 64 MiB: got %+v, want no space", r)
		}
	}},
	{"state/a-copy-has-a-separate-memory-limit", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		saved := save(t, b)
		sibling := c.copyOf(t, e, saved)
		other := c.copyOf(t, e, saved, func(s *engine.Spec) { s.Limits.MemoryBytes = 192 << 20 })
		other.want(t, "echo well", "well")
		// Under the source's limit the program fits, in the source and in another copy.
		const large = "x = b'x' * (300 << 20); print(len(x) >> 20)"
		for _, sandbox := range []*testSandbox{b, sibling} {
			sandbox.want(t, `python3 -c "`+large+`"`, "300")
		}
		ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(2*hosttest.Hang))
		defer cancel()
		if r, err := other.exec(ctx, "user", "python3", "-c", large+"; import time; time.sleep(20)"); err == nil && r.code == 0 {
			t.Fatal("300 MiB fit into 192 MiB")
		}
		exit, err := e.Wait(ctx, other.id)
		if err != nil || exit.Reason != engine.ReasonOOM {
			t.Errorf("the copy ended with %+v, %v; want oom", exit, err)
		}
		for _, sandbox := range []*testSandbox{b, sibling} {
			sandbox.want(t, "echo well", "well")
		}
	}},
	// P26 of docs/reference/promises.md
	{"state/a-copy-has-a-separate-group", func(t testing.TB, c *Config) {
		dir := t.TempDir()
		e := c.Open(t, dir)
		b := c.start(t, e)
		// The control: the listing shows the only sandbox in a group.
		c.wantGroups(t, dir, 1)
		saved := save(t, b)
		c.copyOf(t, e, saved)
		c.wantGroups(t, dir, 2)
		c.copyOf(t, e, saved)
		c.wantGroups(t, dir, 3)
		spec := c.spec(b.id)
		spec.Boot.Config = renewed(b.id, "box", guest.RolledBack)
		if err := saver(e).Replace(t.Context(), spec, saved); err != nil {
			t.Fatal(err)
		}
		c.wantGroups(t, dir, 3)
	}},
	// P4 of docs/reference/promises.md
	{"state/covers-hold-in-a-copy", func(t testing.TB, c *Config) {
		ws := coverTree(t)
		e := c.Open(t, t.TempDir())
		withWorkspace := func(s *engine.Spec) { s.Workspace = ws }
		withCover := func(s *engine.Spec) { s.Hide, s.ReadOnly = toHide, toProtect }
		// The control: the search finds files that are not hidden, in a copy too.
		unprotected := c.start(t, e, withWorkspace)
		c.copyOf(t, e, save(t, unprotected), withWorkspace, continuesAs(guest.Copied)).want(t, search, "3")
		b := c.start(t, e, withWorkspace, withCover)
		saved := save(t, b)
		spec := c.spec(b.id)
		for _, change := range []func(*engine.Spec){withWorkspace, withCover, continuesAs(guest.RolledBack)} {
			change(&spec)
		}
		other := c.copyOf(t, e, saved, withWorkspace, withCover, continuesAs(guest.Copied))
		if err := saver(e).Replace(t.Context(), spec, saved); err != nil {
			t.Fatal(err)
		}
		for _, sandbox := range []*testSandbox{other, attach(t, e, b.id)} {
			wantHidden(t, sandbox)
			wantProtected(t, sandbox)
			sandbox.want(t, "cd /workspace && cat keep && echo x > new && rm keep && cat new", "plainx")
		}
	}},
}

// continuesAs sets the guest's configuration of a sandbox that is restored in the given way.
func continuesAs(how guest.Renewal) func(*engine.Spec) {
	return func(s *engine.Spec) { s.Boot.Config = renewed(s.ID, s.Hostname, how) }
}

// wantGroups checks that the sandboxes below a directory are in the given number of groups, in each
// hierarchy that has any.
func (c *Config) wantGroups(t testing.TB, dir string, want int) {
	t.Helper()
	// A replaced sandbox takes a moment to end.
	hosttest.EventuallyNoError(t, func() error {
		groups := c.Groups(t, dir)
		ok := len(groups) > 0
		for _, names := range groups {
			ok = ok && len(names) == want && !slices.Contains(names, "")
		}
		if !ok {
			return fmt.Errorf("groups by hierarchy %v, want %d in each", groups, want)
		}
		return nil
	})
}
