package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// The crash tests run this test binary as the process that is killed.
const (
	crashDir  = "CRANNOG_TEST_CRASH_DIR"
	crashDrop = "CRANNOG_TEST_CRASH_DROP"
	crashAt   = "CRANNOG_TEST_CRASH_AT"
	writerDir = "CRANNOG_TEST_WRITER_DIR"
	writerID  = "CRANNOG_TEST_WRITER_ID"
)

func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Getenv(crashDir) != "":
		err = writeUntilKilled(os.Getenv(crashDir))
	case os.Getenv(writerDir) != "":
		err = writeMany(os.Getenv(writerDir), os.Getenv(writerID))
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// writeUntilKilled writes an entry before each action, and performs the action when the entry is
// durable. It kills its own process at the step that crashAt names.
func writeUntilKilled(dir string) error {
	stepsLeft, err := strconv.Atoi(os.Getenv(crashAt))
	if err != nil {
		return err
	}
	step := func(string) {
		if stepsLeft--; stepsLeft == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	l, err := Open(Options{Dir: filepath.Join(dir, "record"), Log: quiet(), SegmentBytes: 350, step: step})
	if err != nil {
		return err
	}
	done, err := os.OpenFile(filepath.Join(dir, "done"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for i := range 10 {
		action := fmt.Sprintf("%d.%d", os.Getpid(), i)
		if err := l.Append(ctx, Draft{Kind: Action, Data: action, Time: time.Now().Add(-time.Hour)}); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(done, action); err != nil {
			return err
		}
		if i == 4 {
			if _, err := l.Checkpoint(ctx); err != nil {
				return err
			}
		}
	}
	if os.Getenv(crashDrop) != "" {
		if err := l.Truncate(ctx, time.Now().Add(-30*time.Minute)); err != nil {
			return err
		}
	}
	return l.Close()
}

// runChild runs this test binary with an environment, and reports whether it was killed.
func runChild(t *testing.T, env ...string) (killed bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(err.Error(), "killed") {
		t.Fatalf("child with %v: got %v, want success or killed\n%s", env, err, out)
	}
	return err != nil
}

// P31: an action that requires an entry does not happen before the entry is durable. A process that
// is killed at any step leaves a valid log, and has done nothing that is not in it, even if it was
// killed while repairing a log.
func TestActionNeedsDurableEntry(t *testing.T) {
	for n := 1; ; n++ {
		if n > 120 {
			t.Fatalf("the child still dies at step %d", n)
		}
		dir := t.TempDir()
		killed := runChild(t, crashDir+"="+dir, crashAt+"="+strconv.Itoa(n))
		tear(t, filepath.Join(dir, "record"), n)
		runChild(t, crashDir+"="+dir, crashAt+"=1")
		runChild(t, crashDir+"="+dir, crashAt+"=2")
		checkActions(t, dir, n)
		if !killed {
			if n < 30 {
				t.Errorf("the child ended after %d steps, want at least 30", n)
			}
			return
		}
	}
}

// P30: a crash while old entries are dropped leaves a log that verifies, also against earlier tree
// heads.
func TestCrashDuringTruncateLeavesValidLog(t *testing.T) {
	dropped := false
	for n := 30; ; n++ {
		if n > 200 {
			t.Fatalf("the child still dies at step %d", n)
		}
		dir := t.TempDir()
		killed := runChild(t, crashDir+"="+dir, crashAt+"="+strconv.Itoa(n), crashDrop+"=1")
		heads, err := os.ReadFile(filepath.Join(dir, "record", checkpointsName))
		if err != nil {
			t.Fatal(err)
		}
		notes, err := Notes(heads)
		if err != nil {
			t.Fatal(err)
		}
		v := verify(t, filepath.Join(dir, "record"), notes[0])
		if !v.OK {
			t.Errorf("killed at step %d: Verify got %+v, want OK", n, v)
		}
		dropped = dropped || v.First > 0 && killed
		if !killed {
			if v.First == 0 || !dropped {
				t.Errorf("Truncate dropped no entries: %+v", v)
			}
			return
		}
	}
}

// tear appends a partial line or a partial hash, as an interrupted write may leave them.
func tear(t *testing.T, dir string, n int) {
	t.Helper()
	segments, err := listSegments(dir)
	if err != nil || len(segments) == 0 {
		return // the child was killed before the segment existed
	}
	add := func(name, data string) {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(data); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if n%3 != 0 {
		add(segmentName(segments[len(segments)-1]), `{"seq":5,"time":"2026-01-`)
	} else {
		add(hashesName, "half a hash")
	}
}

// checkActions checks that the log is valid, and that it has an entry for each performed action.
func checkActions(t *testing.T, dir string, n int) {
	t.Helper()
	l := openLog(t, Options{Dir: filepath.Join(dir, "record"), Log: quiet()})
	defer l.Close()
	count := map[string]int{}
	for _, e := range readAll(t, l, Filter{Kinds: []Kind{Action}}) {
		var action string
		if err := json.Unmarshal(e.Data, &action); err != nil {
			t.Fatal(err)
		}
		count[action]++
	}
	done, _ := os.ReadFile(filepath.Join(dir, "done"))
	performed := strings.Fields(string(done))
	for _, a := range performed {
		if count[a] != 1 {
			t.Errorf("killed at step %d: action %s was performed and has %d entries, want 1", n, a, count[a])
		}
	}
	// Each killed process may have recorded at most one action that it did not perform.
	if extra := len(count) - len(performed); extra < 0 || extra > 3 {
		t.Errorf("killed at step %d: %d actions are in the log, but %d were performed", n, len(count), len(performed))
	}
	fill(t, l, 0, 3)
	if v, err := l.Verify(t.Context()); err != nil || !v.OK {
		t.Errorf("killed at step %d: Verify got %+v, %v, want OK", n, v, err)
	}
}

// A power failure may leave zero bytes in place of hashes. The next process computes the hashes
// from the lines.
func TestLostHashesAreComputedAgain(t *testing.T) {
	l := openLog(t, Options{})
	fill(t, l, 0, 9)
	if _, err := l.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	fill(t, l, 9, 30)
	for _, at := range []int64{9, 15, 29} {
		dir := copyDir(t, l.dir)
		f, err := os.OpenFile(filepath.Join(dir, hashesName), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		from := tlog.StoredHashCount(at) * tlog.HashSize
		if _, err := f.WriteAt(make([]byte, tlog.StoredHashCount(30)*tlog.HashSize-from), from); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if v := verify(t, dir); !v.OK || v.Entries != 30 {
			t.Errorf("hashes lost from entry %d on: Verify got %+v, want OK with 30 entries", at, v)
		}
	}
}

const entriesPerWriter = 1000

// writeMany writes entries as one of the processes that write to the same log.
func writeMany(dir, id string) error {
	l, err := Open(Options{Dir: dir, Log: quiet(), SegmentBytes: 20_000})
	if err != nil {
		return err
	}
	for i := range entriesPerWriter {
		d := Draft{Kind: Exec, Sandbox: "box" + id, Data: i, Source: "events/" + id, At: uint64(i) + 1}
		if i%50 == 0 {
			err = l.Append(context.Background(), d)
		} else {
			err = l.Note(d)
		}
		if err != nil {
			return err
		}
	}
	return l.Close()
}

// P30: with several writers the chain is complete, and each entry is in it once, in its writer's
// order.
func TestTwoProcessesWriteAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "record")
	var children []*exec.Cmd
	for _, id := range []string{"a", "b"} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerDir+"="+dir, writerID+"="+id)
		cmd.Stderr = new(bytes.Buffer)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		children = append(children, cmd)
	}
	for _, c := range children {
		if err := c.Wait(); err != nil {
			t.Fatalf("writing child: %v: %s", err, c.Stderr)
		}
	}
	l := openLog(t, Options{Dir: dir})
	if v, err := l.Verify(t.Context()); err != nil || !v.OK || v.Entries != 2*entriesPerWriter {
		t.Errorf("Verify: got %+v, %v, want OK with %d entries", v, err, 2*entriesPerWriter)
	}
	for _, id := range []string{"a", "b"} {
		got := readAll(t, l, Filter{Sandbox: "box" + id})
		if len(got) != entriesPerWriter {
			t.Fatalf("writer %s: got %d entries, want %d", id, len(got), entriesPerWriter)
		}
		for i, e := range got {
			if e.At != uint64(i)+1 {
				t.Fatalf("writer %s: entry %d has position %d, want %d", id, i, e.At, i+1)
			}
		}
		if at, err := l.Position(t.Context(), "events/"+id); at != entriesPerWriter || err != nil {
			t.Errorf("Position of writer %s: got %d, %v, want %d", id, at, err, entriesPerWriter)
		}
	}
}
