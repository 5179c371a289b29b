package lifetime_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/lifetime"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// record is a sandbox's record in these tests.
type record struct {
	ID    string          `json:"id"`
	Owner process.Process `json:"owner"`
	Exit  *engine.Exit    `json:"exit"`
}

// testInstance is a sandbox that is one process of the host.
type testInstance struct {
	*lifetime.Life
	dir string
	rec record
}

func (b *testInstance) Destroy() error {
	if err := b.BeginRemoval(); err != nil {
		return err
	}
	if err := b.rec.Owner.Kill(lifetime.Patience); err != nil {
		return err
	}
	b.AwaitReaped()
	b.ended()
	return sandboxdir.Remove(b.dir)
}

func (b *testInstance) ended() {
	b.End(slog.New(slog.DiscardHandler), func() lifetime.Ending {
		var stored record
		err := sandboxdir.Read(b.dir, &stored)
		return lifetime.Ending{
			Err: err, Owner: stored.Owner, Earlier: stored.Exit, Cause: func() engine.Exit { return engine.Exit{Reason: engine.ReasonExited, Code: 7} },
			Write: func(exit engine.Exit) error { stored.Exit = &exit; return sandboxdir.Write(b.dir, stored) },
		}
	})
}

// testTable is the table of one process. Several share a directory.
type testTable struct{ lifetime.Table[*testInstance] }

func open(dir string) *testTable {
	r := &testTable{}
	r.Engine, r.Dir, r.Log = "test", dir, slog.New(slog.DiscardHandler)
	r.Load = func(id string) (*testInstance, error) {
		rec := record{ID: id}
		err := sandboxdir.Read(filepath.Join(dir, id), &rec)
		return r.handle(rec), err
	}
	return r
}

func (r *testTable) handle(rec record) *testInstance {
	dir := filepath.Join(r.Dir, rec.ID)
	return &testInstance{lifetime.New(dir, rec.Owner), dir, rec}
}

// create makes a sandbox that runs until the returned function is called.
func (r *testTable) create(t *testing.T, id string) (end func()) {
	t.Helper()
	b := r.handle(record{ID: id})
	err := r.Create(t.Context(), id, b, func() error {
		cmd := exec.Command("cat")
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return err
		}
		end = func() { _ = in.Close() }
		t.Cleanup(end)
		if b.rec.Owner, err = b.Start(cmd); err != nil {
			return err
		}
		return sandboxdir.Write(b.dir, b.rec)
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Watch(nil, b.ended)
	return end
}

func (r *testTable) wait(t *testing.T, id string) (engine.Exit, error) {
	t.Helper()
	b, err := r.Find(id)
	if err != nil {
		return engine.Exit{}, err
	}
	b.Watch(nil, b.ended)
	return b.Wait(hosttest.Context(t))
}

func TestExitIsSeenByEveryProcess(t *testing.T) {
	dir := t.TempDir()
	first, second := open(dir), open(dir)
	end := first.create(t, "one")
	b, err := second.Find("one")
	if err != nil || b.Over() {
		t.Fatalf("another process: %v", err)
	}
	end()
	for name, r := range map[string]*testTable{"the creator": first, "another": second, "a later one": open(dir)} {
		if exit, err := r.wait(t, "one"); err != nil || exit.Reason != engine.ReasonExited || exit.Code != 7 || exit.At.IsZero() {
			t.Errorf("%s: Wait returned %+v, %v; want the code 7", name, exit, err)
		}
	}
}

func TestRemovalByAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	first, second := open(dir), open(dir)
	first.create(t, "one")
	if err := second.Remove("one"); err != nil {
		t.Fatal(err)
	}
	if exit, err := first.wait(t, "one"); err != nil || exit.Reason != engine.ReasonKilled {
		t.Errorf("Wait returned %+v, %v; want killed", exit, err)
	}
	if _, err := second.Find("one"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("found after its removal: %v", err)
	}
	// The ID can be used again, and the first process sees the new sandbox.
	second.create(t, "one")
	if b, err := first.Find("one"); err != nil || b.Over() {
		t.Errorf("the new sandbox: %v", err)
	}
	if err := errors.Join(first.Remove("one"), first.Remove("one"), second.Remove("never")); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestCreateFailureLeavesNothing(t *testing.T) {
	r := open(t.TempDir())
	r.Hint = "look"
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want fault.Kind
	}{
		{t.Context(), errors.New("no"), fault.Unavailable},
		{canceled, errors.New("no"), fault.Canceled},
		{t.Context(), context.DeadlineExceeded, fault.Timeout},
		{t.Context(), fault.New(fault.Invalid, "x", "x"), fault.Invalid},
	} {
		err := r.Create(c.ctx, "one", r.handle(record{ID: "one"}), func() error { return c.err })
		if fault.KindOf(err) != c.want {
			t.Errorf("a start that fails with %v: got %v, want %v", c.err, err, c.want)
		}
		if _, err := os.Lstat(filepath.Join(r.Dir, "one")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a start that fails with %v leaves the directory: %v", c.err, err)
		}
	}
	r.create(t, "one")
	err := r.Create(t.Context(), "one", r.handle(record{ID: "one"}), func() error { return nil })
	if fault.KindOf(err) != fault.Exists {
		t.Errorf("an ID in use: %v", err)
	}
	if err := r.Remove("one"); err != nil {
		t.Error(err)
	}
}

func TestRemoveOfInterruptedCreation(t *testing.T) {
	for name, text := range map[string]string{"no record": "", "half a record": `{"id":`} {
		r := open(t.TempDir())
		dir := filepath.Join(r.Dir, "one")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, sandboxdir.RecordName), []byte(text), 0o600); err != nil || json.Valid([]byte(text)) {
				t.Fatal(err)
			}
		}
		if err := r.Remove("one"); err != nil {
			t.Errorf("%s: remove: %v", name, err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the directory is left: %v", name, err)
		}
	}
}
