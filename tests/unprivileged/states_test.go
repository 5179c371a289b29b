package unprivileged_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// P14: states are saved, copied and rolled back for a user as for root. The counting program
// continues in each; its count is not lost.
func TestStates(t *testing.T) {
	dir := home(t)
	ok := func(args ...string) string {
		t.Helper()
		out, code := crannog(t, dir, args...)
		if code != 0 {
			t.Fatalf("crannog %v: exit %d: %s", args, code, out)
		}
		return strings.TrimSpace(out)
	}
	inside := func(box, script string) string {
		t.Helper()
		return ok("exec", box, "--", "sh", "-c", script)
	}
	// counted waits until the program has continued its count.
	counted := func(box string, from int) int {
		t.Helper()
		n, err := strconv.Atoi(inside(box, "while [ $(cat /tmp/count) -le "+strconv.Itoa(from)+" ]; do sleep 0.01; done; cat /tmp/count"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	defer func() {
		ok("rm", "--all", "--yes")
		if left, err := filepath.Glob(filepath.Join(dir, ".local/share/crannog/run/[a-z0-9]*")); err != nil || len(left) != 0 {
			t.Errorf("left: %v %v", left, err)
		}
	}()
	ok("run", "-d", "--name", "one", "--ttl", "5m", "--", "sh", "-c",
		"i=0; echo 0 > /tmp/count; while :; do i=$((i+1)); echo $i > /tmp/next; mv /tmp/next /tmp/count; sleep 0.05; done")
	inside("one", "until [ -e /tmp/count ]; do sleep 0.01; done; echo before > file")
	before := counted("one", 3)
	ok("snapshot", "one", "--name", "kept")
	later := counted("one", before)
	inside("one", "echo after > file")

	copies := strings.Fields(ok("fork", "one", "--count", "2"))
	if len(copies) != 2 {
		t.Fatalf("copies: %q", copies)
	}
	for _, box := range copies {
		counted(box, later)
		if got := inside(box, "cat file; echo "+box+" > file; hostname"); got != "after\n"+box {
			t.Errorf("in the copy %s: %q", box, got)
		}
	}
	if got := inside("one", "cat file"); got != "after" {
		t.Errorf("a copy changed what it is of: %q", got)
	}

	ok("rollback", "one", "kept", "--yes")
	before = counted("one", before)
	if got := inside("one", "cat file"); got != "before" {
		t.Errorf("after going back: %q", got)
	}
	ok("pause", "one")
	if out := ok("ls", "--json"); !strings.Contains(out, `"paused"`) {
		t.Errorf("not paused: %s", out)
	}
	ok("resume", "one")
	counted("one", before)
	ok("reset", "one", "--yes")
	if got := inside("one", "cat file 2>/dev/null || echo none"); got != "none" {
		t.Errorf("at its start: %q", got)
	}
	if got := ok("run", "--from", "kept", "--", "cat", "file"); got != "before" {
		t.Errorf("from the snapshot: %q", got)
	}
	ok("snapshot", "rm", "kept")
}
