package fake_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
)

// A state can be restored any number of times under other IDs, and the copies are independent.
// Files can be restored without memory.
func TestCopiesOfStateAreIndependent(t *testing.T) {
	e, err := fake.New(fake.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, stateDir := t.Context(), t.TempDir()
	config := []byte(`{"control_token":"c"}`)
	if err := e.Create(ctx, engine.Spec{ID: "a", Boot: engine.Boot{Config: config}}); err != nil {
		t.Fatal(err)
	}
	e.State("a").Remember("x", "1")
	e.State("a").Write("f", "one")
	if err := e.Checkpoint(ctx, "a", stateDir); err != nil {
		t.Fatal(err)
	}
	e.State("a").Remember("x", "2")
	for _, id := range []string{"b", "c"} {
		if err := e.Restore(ctx, engine.Spec{ID: id, Boot: engine.Boot{Config: config}}, stateDir); err != nil {
			t.Fatal(err)
		}
	}
	e.State("b").Remember("x", "3")
	for id, want := range map[string]string{"a": "2", "b": "3", "c": "1"} {
		if got := e.State(id).Memory("x"); got != want {
			t.Errorf("%s remembers %q, want %q", id, got, want)
		}
	}
	if err := e.Replace(ctx, engine.Spec{ID: "a", Boot: engine.Boot{Config: config}}, stateDir); err != nil || e.State("a").Memory("x") != "1" {
		t.Errorf("replaced: %v, %q", err, e.State("a").Memory("x"))
	}
	name := filepath.Join(t.TempDir(), "files.tar")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := e.Archive(ctx, "a", f); err != nil {
		t.Fatal(err)
	}
	if err := e.Create(ctx, engine.Spec{ID: "d", Boot: engine.Boot{Config: config, Files: f}}); err != nil {
		t.Fatal(err)
	}
	if s := e.State("d"); s.File("f") != "one" || s.Memory("x") != "" {
		t.Errorf("a sandbox made from an archive has the file %q and the memory %q, want only the file", s.File("f"), s.Memory("x"))
	}
}

// After a failed step the old sandbox still runs, except after ReplaceStop.
func TestFailedStateStepsKeepSandbox(t *testing.T) {
	broken := errors.New("broken on purpose")
	var at fake.Step
	e, err := fake.New(fake.Options{Dir: t.TempDir(), Fault: func(step fake.Step, _ string) error {
		if step == at {
			return broken
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, stateDir := t.Context(), t.TempDir()
	spec := engine.Spec{ID: "box", Boot: engine.Boot{Config: []byte(`{"control_token":"c"}`)}}
	if err := e.Create(ctx, spec); err != nil {
		t.Fatal(err)
	}
	if err := e.Checkpoint(ctx, "box", stateDir); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "files.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ops := map[fake.Step]func() error{
		fake.CheckpointBegin: func() error { return e.Checkpoint(ctx, "box", t.TempDir()) },
		fake.CheckpointSaved: func() error { return e.Checkpoint(ctx, "box", t.TempDir()) },
		fake.ArchiveBegin:    func() error { return e.Archive(ctx, "box", f) },
		fake.ArchiveSaved:    func() error { return e.Archive(ctx, "box", f) },
		fake.ExtractBegin:    func() error { return e.Extract(ctx, spec, stateDir, f) },
		fake.ExtractSaved:    func() error { return e.Extract(ctx, spec, stateDir, f) },
		fake.RestoreBegin:    func() error { return e.Restore(ctx, engine.Spec{ID: "other"}, stateDir) },
		fake.ReplaceBegin:    func() error { return e.Replace(ctx, spec, stateDir) },
		fake.ReplaceReady:    func() error { return e.Replace(ctx, spec, stateDir) },
		fake.ReplaceStop:     func() error { return e.Replace(ctx, spec, stateDir) },
	}
	for _, at = range fake.StateSteps {
		if err := ops[at](); !errors.Is(err, broken) {
			t.Errorf("a failure at %s: got %v", at, err)
		}
		gone := at == fake.ReplaceStop
		list, err := e.List(ctx)
		if err != nil || gone != (len(list) == 0) || gone != (e.State("box") == nil) {
			t.Errorf("after %s: %v, %v", at, list, err)
		}
	}
	at = ""
	if err := e.Replace(ctx, spec, stateDir); fault.KindOf(err) != fault.NotFound {
		t.Errorf("replace a missing sandbox: got %v, want not found", err)
	}
}

func TestUndeclaredEgressIsRefused(t *testing.T) {
	e, err := fake.New(fake.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	spec := engine.Spec{ID: "box", Boot: engine.Boot{Config: []byte(`{"control_token":"c"}`)}}
	if err := e.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	stateDir := t.TempDir()
	if err := e.Checkpoint(t.Context(), "box", stateDir); err != nil {
		t.Fatal(err)
	}
	undeclared := spec
	undeclared.Egress = engine.Egress{Kind: engine.EgressTap, End: os.Stdin}
	other := undeclared
	other.ID = "other"
	for name, err := range map[string]error{
		"create":  e.Create(t.Context(), other),
		"restore": e.Restore(t.Context(), other, stateDir),
		"replace": e.Replace(t.Context(), undeclared, stateDir),
	} {
		if fault.CodeOf(err) != "egress_unsupported" {
			t.Errorf("%s with undeclared egress: got %v, want egress_unsupported", name, err)
		}
	}
	if list, err := e.List(t.Context()); err != nil || len(list) != 1 || list[0].State != engine.Running {
		t.Errorf("after the refusals there are %v, %v", list, err)
	}
}
