package fake_test

import (
	"errors"
	"os"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/enginetest"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
)

// open opens a fake engine with programs on a state directory.
func open(t testing.TB, dir string) engine.Engine {
	t.Helper()
	e, err := fake.NewPrograms(fake.Options{Dir: dir + "/run"})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// config returns the configuration of the contract's rules for the fake engine.
func config(root string) enginetest.Config {
	return enginetest.Config{
		Open: open, Image: engine.ViewOf(root, ""),
		Residue: func(_ testing.TB, dir string) map[string]int { return fake.Residue(dir + "/run") },
	}
}

// BenchmarkConformance measures the time that the fake itself needs, so that the benchmarks of
// callers can subtract it.
func BenchmarkConformance(b *testing.B) {
	enginetest.Benchmarks(b, config(b.TempDir()))
}

// The fake passes every rule for the features that it declares, without waivers.
func TestConformance(t *testing.T) {
	enginetest.Run(t, config(t.TempDir()))
}

// A failed step leaves nothing behind, and a failed removal can be repeated.
func TestFailedStepsLeaveNothing(t *testing.T) {
	broken := errors.New("broken on purpose")
	var at fake.Step
	dir := t.TempDir()
	e, err := fake.New(fake.Options{Dir: dir, Fault: func(step fake.Step, _ string) error {
		if step == at {
			return broken
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	spec := engine.Spec{ID: "box", Boot: engine.Boot{Config: []byte(`{"control_token":"c"}`)}}
	for _, at = range fake.Steps[:4] {
		if err := e.Create(t.Context(), spec); !errors.Is(err, broken) {
			t.Errorf("create with a failure at %s: got %v", at, err)
		}
		if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("after a fault at %s the sandboxes %v are left, %v", at, list, err)
		}
	}
	for _, step := range fake.Steps[4:] {
		at = ""
		if err := e.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		at = step
		if err := e.Remove(t.Context(), "box"); !errors.Is(err, broken) {
			t.Errorf("remove with a failure at %s: got %v", step, err)
		}
		at = ""
		if err := e.Remove(t.Context(), "box"); err != nil {
			t.Errorf("after %s: %v", step, err)
		}
		if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("after a fault at %s the sandboxes %v are left, %v", step, list, err)
		}
	}
}

// A sandbox of a dead process is listed, counts as ended, and can be removed.
func TestSandboxOfEndedProcess(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/box", 0o700); err != nil {
		t.Fatal(err)
	}
	e, err := fake.New(fake.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	list, err := e.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != "box" || list[0].State != engine.Stopped {
		t.Errorf("list %v, %v", list, err)
	}
	if exit, err := e.Wait(t.Context(), "box"); err != nil || exit.Reason != engine.ReasonCrashed {
		t.Errorf("wait %+v, %v", exit, err)
	}
	if err := e.Create(t.Context(), engine.Spec{ID: "box"}); fault.KindOf(err) != fault.Exists {
		t.Errorf("create with its ID: got %v, want exists", err)
	}
	if err := e.Remove(t.Context(), "box"); err != nil {
		t.Error(err)
	}
	if _, err := e.Wait(t.Context(), "box"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("wait after removal: %v", err)
	}
}
