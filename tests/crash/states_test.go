package crash_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/hosttest"
	"github.com/crannog/crannog/internal/servetest"
)

// moments are how many kills there are of each operation, step apart.
const (
	moments = 7
	step    = 12 * time.Millisecond
)

// remember starts a program that keeps a number in memory alone and writes it
// to a file on each SIGUSR1, and returns its process number.
func remember(t *testing.T, sb *crannog.Sandbox, number int) string {
	t.Helper()
	return output(t, sb, fmt.Sprintf(`cat > keep.py <<'X'
import signal, time
n = %d
def tell(*a):
    open("/tmp/told", "w").write(str(n))
signal.signal(signal.SIGUSR1, tell)
open("/tmp/up", "w").close()
while True: signal.pause()
X
setsid python3 keep.py >/dev/null 2>&1 & echo $!; while ! test -e /tmp/up; do sleep 0.02; done`, number))
}

// recall asks the program for its number.
func recall(t *testing.T, sb *crannog.Sandbox) string {
	t.Helper()
	return output(t, sb, `rm -f /tmp/told; pkill -USR1 -f '^python3 keep'; while ! test -s /tmp/told; do sleep 0.02; done; cat /tmp/told`)
}

// P29: a server that is killed at any moment of a change of state leaves the
// sandbox running or paused with all that it had, and no half snapshot.
func TestKilledWhileSaving(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	for name, act := range map[string]func(ctx context.Context, sb *crannog.Sandbox) error{
		"pause":      func(ctx context.Context, sb *crannog.Sandbox) error { return sb.Pause(ctx) },
		"pausefiles": func(ctx context.Context, sb *crannog.Sandbox) error { return sb.PauseFiles(ctx) },
		"snapshot": func(ctx context.Context, sb *crannog.Sandbox) error {
			_, err := sb.Snapshot(ctx, api.CreateSnapshot{})
			return err
		},
		"fork": func(ctx context.Context, sb *crannog.Sandbox) error {
			_, err := sb.Fork(ctx, api.CreateFork{Count: 2})
			return err
		},
		"rollback": func(ctx context.Context, sb *crannog.Sandbox) error { return sb.Rollback(ctx, "base-"+sb.ID()) },
		"resume": func(ctx context.Context, sb *crannog.Sandbox) error {
			if err := sb.Pause(ctx); err != nil {
				return err
			}
			return sb.Resume(ctx, 10*time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := t.TempDir()
			s := servetest.Start(t, program, state)
			sb, err := s.Client(t).Create(t.Context(), crannog.Timeout(10*time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			id := sb.ID()
			remember(t, sb, 4711)
			output(t, sb, "echo precious > /home/user/file; sync")
			if _, err := sb.Snapshot(t.Context(), api.CreateSnapshot{Name: "base-" + id}); err != nil {
				t.Fatal(err)
			}
			for i := range moments {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = act(ctx, sb) // it fails or succeeds as the kill wants it
				}()
				time.Sleep(time.Duration(i) * step)
				s.Kill()
				cancel()
				<-done
				s = servetest.Start(t, program, state)
				sb = whole(t, s, id, name == "pausefiles")
			}
			snapshots(t, s, id)
			if err := sb.Kill(t.Context()); err != nil {
				t.Error(err)
			}
			empty(t, s)
			s.Stop(t)
			servetest.NothingLeft(t, state)
			if drafts, _ := filepath.Glob(filepath.Join(state, "snapshots", "drafts", "*")); len(drafts) > 0 {
				t.Errorf("left: %q", drafts)
			}
		})
	}
}

// whole looks whether the sandbox has all that it had.
func whole(t *testing.T, s *servetest.Server, id string, boots bool) *crannog.Sandbox {
	t.Helper()
	sb, err := s.Client(t).Get(t.Context(), id)
	if err != nil {
		t.Fatalf("%v\n%s", err, s.Stderr())
	}
	// A change that the dead server had begun is settled first.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		info, err := sb.Refresh(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.State == "running" || info.State == "paused" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the sandbox stays %s\n%s", info.State, s.Stderr())
		}
	}
	paused := sb.Info().State == "paused"
	if paused {
		if err := sb.Resume(t.Context(), 10*time.Minute); err != nil {
			t.Fatalf("resume: %v\n%s", err, s.Stderr())
		}
	}
	if got := output(t, sb, "cat /home/user/file"); got != "precious" {
		t.Errorf("the file holds %q\n%s", got, s.Stderr())
	}
	if paused && boots {
		remember(t, sb, 4711) // it booted anew
	}
	if got := recall(t, sb); got != "4711" {
		t.Errorf("the program remembers %q\n%s", got, s.Stderr())
	}
	return sb
}

// snapshots looks whether each that is listed can be used, and removes all.
func snapshots(t *testing.T, s *servetest.Server, id string) {
	t.Helper()
	client := s.Client(t)
	list, err := client.Snapshots(t.Context(), crannog.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Error("control: there is no snapshot")
	}
	for _, snapshot := range list {
		other, err := client.Create(t.Context(), crannog.Template(snapshot.ID), crannog.Timeout(time.Minute))
		if err != nil {
			t.Errorf("snapshot %s: %v", snapshot.ID, err)
			continue
		}
		if got := output(t, other, "cat /home/user/file"); got != "precious" {
			t.Errorf("snapshot %s of %s holds %q", snapshot.ID, id, got)
		}
		if err := other.Kill(t.Context()); err != nil {
			t.Error(err)
		}
		if err := client.RemoveSnapshot(t.Context(), snapshot.ID); err != nil {
			t.Error(err)
		}
	}
}

// empty ends what copies the kills left running.
func empty(t *testing.T, s *servetest.Server) {
	t.Helper()
	list, err := s.Client(t).List(t.Context(), crannog.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range list {
		sb, err := s.Client(t).Get(t.Context(), one.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got := output(t, sb, "cat /home/user/file"); got != "precious" {
			t.Errorf("copy %s holds %q", one.ID, got)
		}
		if err := sb.Kill(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// P7: what was paused under one build of the program goes on under another.
func TestPausedAcrossAnUpgrade(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	state := t.TempDir()
	first := servetest.Start(t, program, state)
	sb, err := first.Client(t).Create(t.Context(), crannog.Timeout(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	remember(t, sb, 42)
	if err := sb.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Stop(t)
	upgraded := filepath.Join(t.TempDir(), "crannog-upgraded")
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(upgraded, append(data, 0), 0o755); err != nil {
		t.Fatal(err)
	}
	second := servetest.Start(t, upgraded, state)
	if sb, err = second.Client(t).Get(t.Context(), sb.ID()); err != nil {
		t.Fatal(err)
	}
	if err := sb.Resume(t.Context(), time.Minute); err != nil {
		t.Fatalf("%v\n%s", err, second.Stderr())
	}
	if got := recall(t, sb); got != "42" {
		t.Errorf("the program remembers %q", got)
	}
	if err := sb.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	second.Stop(t)
	servetest.NothingLeft(t, state)
	if strings.Contains(second.Stderr(), "panic") {
		t.Error(second.Stderr())
	}
}
