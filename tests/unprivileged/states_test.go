package unprivileged_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// P14: states are saved, copied and rolled back for a user as for root. A counting program
// continues in each of them.
func TestUserSavesAndRestoresStates(t *testing.T) {
	dir := userHome(t)
	run := func(args ...string) string {
		t.Helper()
		out, code := crannog(t, dir, args...)
		if code != 0 {
			t.Fatalf("crannog %v: exit %d: %s", args, code, out)
		}
		return strings.TrimSpace(out)
	}
	inside := func(sandbox, script string) string {
		t.Helper()
		return run("exec", sandbox, "--", "sh", "-c", script)
	}
	// awaitCount waits until the program has counted beyond a number, and returns its count.
	awaitCount := func(sandbox string, from int) int {
		t.Helper()
		n, err := strconv.Atoi(inside(sandbox, "while [ $(cat /tmp/count) -le "+strconv.Itoa(from)+" ]; do sleep 0.01; done; cat /tmp/count"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	defer func() {
		run("rm", "--all", "--yes")
		if left, err := filepath.Glob(filepath.Join(dir, ".local/share/crannog/run/[a-z0-9]*")); err != nil || len(left) != 0 {
			t.Errorf("directories of sandboxes are left: %v %v", left, err)
		}
	}()
	run("run", "-d", "--name", "one", "--ttl", "5m", "--", "sh", "-c",
		"i=0; echo 0 > /tmp/count; while :; do i=$((i+1)); echo $i > /tmp/next; mv /tmp/next /tmp/count; sleep 0.05; done")
	inside("one", "until [ -e /tmp/count ]; do sleep 0.01; done; echo before > file")
	before := awaitCount("one", 3)
	run("snapshot", "one", "--name", "kept")
	later := awaitCount("one", before)
	inside("one", "echo after > file")

	copies := strings.Fields(run("fork", "one", "--count", "2"))
	if len(copies) != 2 {
		t.Fatalf("copies: %q", copies)
	}
	for _, sandbox := range copies {
		awaitCount(sandbox, later)
		if got := inside(sandbox, "cat file; echo "+sandbox+" > file; hostname"); got != "after\n"+sandbox {
			t.Errorf("in the fork %s: got %q", sandbox, got)
		}
	}
	if got := inside("one", "cat file"); got != "after" {
		t.Errorf("a fork changed its source: %q", got)
	}

	run("rollback", "one", "kept", "--yes")
	before = awaitCount("one", before)
	if got := inside("one", "cat file"); got != "before" {
		t.Errorf("after the rollback: got %q", got)
	}
	run("pause", "one")
	if out := run("ls", "--json"); !strings.Contains(out, `"paused"`) {
		t.Errorf("the sandbox is not paused: %s", out)
	}
	run("resume", "one")
	awaitCount("one", before)
	run("reset", "one", "--yes")
	if got := inside("one", "cat file 2>/dev/null || echo none"); got != "none" {
		t.Errorf("after the reset: got %q", got)
	}
	if got := run("run", "--from", "kept", "--", "cat", "file"); got != "before" {
		t.Errorf("a sandbox from the snapshot: got %q", got)
	}
	run("snapshot", "rm", "kept")
}
