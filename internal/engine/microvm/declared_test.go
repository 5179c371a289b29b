package microvm_test

import (
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

// fullEngine lists the interfaces of this engine.
type fullEngine interface {
	engine.Engine
	engine.Meter
	engine.Freezer
	engine.Checkpointer
}

// withKVMBoundary is an emulated engine that declares the boundary that it would have with KVM,
// because the rules are about that boundary.
type withKVMBoundary struct{ fullEngine }

// Info implements engine.Engine.
func (b withKVMBoundary) Info() engine.Info {
	info := b.fullEngine.Info()
	info.Boundary = engine.OwnKernel
	return info
}

// declared returns a function that opens the engine with that boundary.
func declared(open func(t testing.TB, dir string) engine.Engine) func(t testing.TB, dir string) engine.Engine {
	return func(t testing.TB, dir string) engine.Engine {
		t.Helper()
		e, ok := open(t, dir).(fullEngine)
		if !ok {
			t.Fatal("without control groups, the engine cannot freeze sandboxes")
		}
		return withKVMBoundary{e}
	}
}

// waived lists the rules that cannot hold, with the reasons.
var waived = map[string]string{
	"boundary/probes-are-refused":              "the calls reach a kernel of the sandbox's own, which is a whole Linux",
	"boundary/host-state-does-not-change":      "its control: root inside cannot change the settings of its own kernel, which would lift what the policy protects",
	"namespaces/programs-can-create-them":      "settings of the kernel are read-only inside, so no namespace gets a /proc of its own",
	"namespaces/bubblewrap":                    "as above",
	"state/a-copy-has-a-separate-memory-limit": "the memory of a machine cannot change, so another limit is refused",
}
