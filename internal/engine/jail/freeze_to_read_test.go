package jail_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// A sandbox is frozen while a process reads its files. If that process dies, the sandbox is thawed
// as soon as another process accesses it.
func TestSandboxIsThawedIfItsReaderDied(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir := t.TempDir()
	e := open(false)(t, dir)
	spec := engine.Spec{ID: "read", Image: image(t), Boot: engine.Boot{
		Config: []byte(`{"sandbox_id":"read","hostname":"read","default_user":"user","control_token":"x","access_token":"y"}`),
	}}
	if err := e.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	freezer, ok := e.(engine.Freezer)
	if !ok {
		t.Fatal("the engine cannot freeze sandboxes here")
	}
	if err := freezer.Freeze(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	mark := filepath.Join(dir, "jail", spec.ID, "reading")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	next := open(false)(t, dir)
	if list, err := next.List(t.Context()); err != nil || len(list) != 1 || list[0].State != engine.Running {
		t.Fatalf("another process lists the sandboxes %+v, %v; want one that runs", list, err)
	}
	ctx, cancel := context.WithDeadline(t.Context(), hosttest.Deadline())
	defer cancel()
	conn, err := next.Dial(ctx, spec.ID, guestboot.Port)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(mark); !os.IsNotExist(err) {
		t.Errorf("%s still exists: %v", mark, err)
	}
	if err := next.Remove(t.Context(), spec.ID); err != nil {
		t.Error(err)
	}
}
