package record_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// life is the timeout of a sandbox that a failed test leaves behind.
const life = 5 * time.Hour

// P33: a server that is killed several times, while programs run and callers act, loses and
// duplicates no entry.
func TestKilledServerLosesNothing(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	const sandboxes, each, kills = 3, 400, 4
	state := t.TempDir()
	s := servetest.Start(t, program, state)
	client := s.Client(t)
	var ids []string
	for range sandboxes {
		sb, err := client.Create(t.Context(), crannog.Timeout(life))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, sb.ID())
		// The program continues if the process that started it ends.
		must(t, sb, fmt.Sprintf("(i=0; while [ $i -lt %d ]; do /bin/true; echo $i > /tmp/n$i; i=$((i+1)); done; echo > /tmp/done) < /dev/null > /dev/null 2>&1 &", each))
	}
	var requested, answered atomic.Int64
	for i := range kills {
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for {
				select {
				case <-stop:
					return
				default:
				}
				sb, err := client.Get(t.Context(), ids[0])
				if err != nil {
					continue
				}
				requested.Add(1)
				if sb.SetTimeout(t.Context(), life) == nil {
					answered.Add(1)
				}
			}
		}()
		before := answered.Load()
		hosttest.Eventually(t, "the server answers", func() bool { return answered.Load() > before })
		time.Sleep(time.Duration(150+37*i) * time.Millisecond) // kills at another moment each time
		s.Kill()
		close(stop)
		<-ended
		s = servetest.Start(t, program, state)
		client = s.Client(t)
	}
	for _, id := range ids {
		sb, err := client.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		must(t, sb, "i=0; while [ ! -e /tmp/done ]; do sleep 0.1; done")
		kill(t, sb)
	}
	s.Stop(t)
	got := readAuditLog(t, state)
	for _, id := range ids {
		changes, files := got.countChanges(id, "/tmp/n")
		if n := got.programs[id]["true"]; n != each || changes != each || files != each {
			t.Errorf("%s: got %d programs and %d changes of %d files, want %d of each", id, n, changes, files, each)
		}
		// The background shell was forked and executed nothing, so it has only an exit entry.
		if k := got.kinds[id]; k[audit.SandboxStarted] != 1 || k[audit.SandboxEnded] != 1 || k[audit.Exit] != k[audit.Exec]+1 {
			t.Errorf("%s: the entries by kind are %v", id, k)
		}
	}
	if n := int64(got.actions["timeout"]); n < answered.Load() || n > requested.Load() || answered.Load() == 0 {
		t.Errorf("got %d changes of the timeout, want between the %d answered and the %d requested", n, answered.Load(), requested.Load())
	}
	if k := got.kinds[""]; k[audit.ServerStarted] != kills+1 || k[audit.ServerStopped] != 1 {
		t.Errorf("the server's entries by kind are %v", k)
	}
	if len(got.gaps) > 0 || got.actions["create"] != sandboxes || got.actions["remove"] != sandboxes {
		t.Errorf("got the gaps %v and the actions %v", got.gaps, got.actions)
	}
	runProgram(t, state, "audit", "verify")
}

// TestDiskFull checks that a full disk of the audit log prevents new sandboxes but not the end of
// running ones. The log must report the entries that could not be written.
func TestDiskFull(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state := t.TempDir()
	dir := filepath.Join(state, "record")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("crannog-record-test", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=4m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := servetest.Start(t, program, state)
	client := s.Client(t)
	sb, err := client.Create(t.Context(), crannog.Timeout(life))
	if err != nil {
		t.Fatal(err)
	}
	must(t, sb, "/bin/true")
	// Together, the entries about the ends of several sandboxes do not fit into the last page.
	others := make([]*crannog.Sandbox, 8)
	for i := range others {
		if others[i], err = client.Create(t.Context(), crannog.Timeout(life)); err != nil {
			t.Fatal(err)
		}
	}
	// The index of the log frees pages that it needed for a moment, so the disk is filled again.
	var fillers []string
	for i := range 4 {
		filler := filepath.Join(dir, fmt.Sprint("filler", i))
		fill(t, filler)
		fillers = append(fillers, filler)
		// The last page may still have room for an entry.
		hosttest.Eventually(t, "a full disk prevents a creation", func() bool {
			other, err := client.Create(t.Context(), crannog.Timeout(life))
			if err == nil {
				kill(t, other)
				return false
			}
			var refused *crannog.Error
			if !errors.As(err, &refused) || refused.Code != "record_unavailable" {
				t.Errorf("create on a full disk: got %v, want record_unavailable", err)
			}
			return true
		})
	}
	for _, one := range append(others, sb) {
		if err := one.Kill(t.Context()); err != nil {
			t.Errorf("a sandbox cannot be ended: %v", err)
		}
	}
	hosttest.EventuallyAtMost(t, "processes", 0, func() int { return servetest.Processes(t, state) })
	for _, filler := range fillers {
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	hosttest.EventuallyNoError(t, func() error {
		again, err := client.Create(t.Context(), crannog.Timeout(life))
		if err == nil {
			kill(t, again)
		}
		return err
	})
	s.Stop(t)
	got := readAuditLog(t, state)
	if len(got.gaps) == 0 {
		t.Error("no entry reports the gap")
	}
	// The programs' events are on another disk and were ingested later.
	if n := got.programs[sb.ID()]["true"]; n != 1 {
		t.Errorf("got %d entries of the program before the disk was full, want 1", n)
	}
}

// fill uses up the free space of a disk.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for {
		if _, err := f.Write(block); err != nil {
			return
		}
	}
}

// TestSandboxesLeaveNoDescriptors checks that 50 sandboxes leave no descriptor in the server, and
// no file except their rows.
func TestSandboxesLeaveNoDescriptors(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state := t.TempDir()
	s := servetest.Start(t, program, state)
	client := s.Client(t)
	cycle := func() {
		sb, err := client.Create(t.Context(), crannog.Timeout(life))
		if err != nil {
			t.Fatal(err)
		}
		must(t, sb, "/bin/true; echo > /tmp/x")
		kill(t, sb)
	}
	for range 5 {
		cycle()
	}
	before := len(descriptors(t, s.PID()))
	for range 50 {
		cycle()
	}
	hosttest.EventuallyNoError(t, func() error {
		if now := descriptors(t, s.PID()); len(now) > before {
			return fmt.Errorf("got %d descriptors before, and now %q", before, now)
		}
		return nil
	})
	runProgram(t, state, "prune", "-y")
	for _, dir := range []string{"events", "net"} {
		if left, err := os.ReadDir(filepath.Join(state, dir)); err != nil || len(left) > 0 {
			t.Errorf("files are left in %s: %v, %v", dir, left, err)
		}
	}
	s.Stop(t)
	if got := readAuditLog(t, state); got.actions["create"] != 55 || got.actions["remove"] != 55 || len(got.gaps) > 0 {
		t.Errorf("got the actions %v and the gaps %v", got.actions, got.gaps)
	}
}

// descriptors returns the open files of a process that belong to the audit log.
func descriptors(t *testing.T, pid int) (open []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && isAuditFile(to) {
			open = append(open, to)
		}
	}
	return open
}

// isAuditFile reports whether a path belongs to the audit log or its sources.
func isAuditFile(path string) bool {
	return path == "anon_inode:inotify" || slices.Contains([]string{"events", "net", "record"}, filepath.Base(filepath.Dir(path)))
}
