package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/audited"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/store"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// The crash test runs this test binary as the process that dies.
const (
	crashDir = "CRANNOG_TEST_CRASH_DIR"
	crashAt  = "CRANNOG_TEST_CRASH_AT"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		work := createAndForget
		if what := os.Getenv(crashMode); what != "" {
			work = func(dir string) error { return retainAndDiscard(dir, what) }
		}
		if err := work(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// crashCounter kills this process at the n-th call of tick.
type crashCounter struct{ left int }

func (b *crashCounter) tick() {
	if b.left--; b.left == 0 {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// crashingStore is a store that ticks before and after each write.
type crashingStore struct {
	sandbox.Store
	*crashCounter
}

func (m crashingStore) Insert(ctx context.Context, r sandbox.Row, max int) error {
	m.tick()
	defer m.tick()
	return m.Store.Insert(ctx, r, max)
}

func (m crashingStore) Move(ctx context.Context, id string, move sandbox.Move) (bool, error) {
	m.tick()
	defer m.tick()
	return m.Store.Move(ctx, id, move)
}

func (m crashingStore) Delete(ctx context.Context, id string) error {
	m.tick()
	defer m.tick()
	return m.Store.Delete(ctx, id)
}

func (m crashingStore) Append(ctx context.Context, id string, e sandbox.LogEntry) error {
	m.tick()
	defer m.tick()
	return m.Store.Append(ctx, id, e)
}

// createAndForget creates a sandbox, removes it and removes its row.
func createAndForget(dir string) error {
	n, err := strconv.Atoi(os.Getenv(crashAt))
	if err != nil {
		return err
	}
	b := &crashCounter{left: n}
	ctx := context.Background()
	st, err := store.Open(ctx, dir)
	if err != nil {
		return err
	}
	eng, err := fake.New(fake.Options{Dir: filepath.Join(dir, "run"), Fault: func(fake.Step, string) error {
		b.tick()
		return nil
	}})
	if err != nil {
		return err
	}
	s, err := audited.NewService(lifecycle.Deps{
		Store: crashingStore{st, b}, Engines: fake.Registry(eng), Templates: templates{}, Log: slog.New(slog.DiscardHandler),
		Audit: auditlog.New(&audittest.Log{}, slog.New(slog.DiscardHandler)), Settings: sandbox.Settings{AnyBoundary: true},
	})
	if err != nil {
		return err
	}
	sb, err := s.Create(ctx, local, sandbox.CreateRequest{Template: "base", Name: "web"})
	if err != nil {
		return err
	}
	return errors.Join(s.Forget(ctx, local, sb.ID), s.Close(ctx), st.Close())
}

// P9: a crash at any step of create or remove leaves nothing behind.
func TestCrashAtEachStep(t *testing.T) {
	const tooMany = 100
	for n := 1; ; n++ {
		if n == tooMany {
			t.Fatalf("the child still dies at step %d", n)
		}
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashDir+"="+dir, crashAt+"="+strconv.Itoa(n))
		out, err := cmd.CombinedOutput()
		if err == nil {
			if n < 20 {
				t.Errorf("the child survived %d steps; its crash points are not reached", n)
			}
			return
		}
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
			t.Fatalf("step %d: %v\n%s", n, err, out)
		}
		checkAfterCrash(t, n, dir)
	}
}

// checkAfterCrash opens the state after a crash, and checks that no sandbox of it is alive.
func checkAfterCrash(t *testing.T, n int, dir string) {
	t.Helper()
	r := &rig{t: t, dir: dir, ends: map[string]time.Time{}}
	r.open()
	defer r.engine.Close()
	defer r.close()
	report := r.reconcile()
	// The fake's guests die with their process, which the watch notices.
	hosttest.Eventually(t, fmt.Sprintf("step %d: all has stopped", n), func() bool {
		page, err := r.List(t.Context(), local, sandbox.Filter{
			States: []sandbox.State{sandbox.Creating, sandbox.Running, sandbox.Stopping},
		})
		return err == nil && len(page.Sandboxes) == 0
	})
	r.wantNothingLeft()
	if t.Failed() {
		t.Fatalf("step %d: report %+v", n, report)
	}
	r.create(local, func(c *sandbox.CreateRequest) { c.Name = "web" })
}
