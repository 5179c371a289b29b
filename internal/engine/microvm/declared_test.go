package microvm_test

import (
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

// able is an engine with the abilities of this one.
type able interface {
	engine.Engine
	engine.Meter
	engine.Freezer
}

// bounded is an emulated engine that declares the boundary that it has with KVM: the rules are about
// that one.
type bounded struct{ able }

// Info implements engine.Engine.
func (b bounded) Info() engine.Info {
	info := b.able.Info()
	info.Boundary = engine.OwnKernel
	return info
}

func declared(open func(t testing.TB, dir string) engine.Engine) func(t testing.TB, dir string) engine.Engine {
	return func(t testing.TB, dir string) engine.Engine {
		t.Helper()
		e, ok := open(t, dir).(able)
		if !ok {
			t.Fatal("without control groups of its own, the engine cannot freeze sandboxes")
		}
		return bounded{e}
	}
}

// waived are the rules that cannot hold.
var waived = map[string]string{
	"boundary/probes-are-refused":                       "the calls reach a kernel of the sandbox's own, which is a whole Linux",
	"boundary/host-state-does-not-change":               "its control: root inside cannot change the settings of its own kernel, which would lift what the policy protects",
	"namespaces/programs-can-create-them":               "settings of the kernel are read-only inside, so no namespace gets a /proc of its own",
	"namespaces/bubblewrap":                             "as above",
	"changes/exported-files-equal-those-in-the-sandbox": "the workspace is a copy, so each file has a new time of change and is read",
	"changes/a-forged-time-does-not-hide-a-change":      "the workspace is a copy, so each file has a new time of change and is read",
}
