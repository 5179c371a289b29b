package gvisor_test

import (
	"encoding/json"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/arch"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/syscalls/linux"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/enginetest"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// init makes the kernel of a restored sandbox with the host name crashes panic at newfstatat, a
// call that the guest makes when it prepares itself. This happens only in the program of these
// tests.
func init() {
	for table, newfstatat := range map[*sentry.SyscallTable]uintptr{linux.AMD64: 262, linux.ARM64: 79} {
		call := table.Table[newfstatat]
		original := call.Fn
		call.Fn = func(t *sentry.Task, number uintptr, args arch.SyscallArguments) (uintptr, *sentry.SyscallControl, error) {
			if t.Kernel().CheckpointGen().Restore && t.UTSNamespace().HostName() == crashes {
				panic("made by a test")
			}
			return original(t, number, args)
		}
		table.Table[newfstatat] = call
	}
}

// crashes is the name of the sandbox whose kernel crashes.
const crashes = "crashes"

// If the kernel of a sandbox crashed, the error contains the kernel's crash message.
func TestRestoreErrorNamesCrash(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	c := enginetest.Config{Open: open(false), Image: root(t)}
	dir := c.Saved(t, "true")
	e := c.Open(t, t.TempDir())
	err := e.(engine.Checkpointer).Restore(t.Context(), engine.Spec{ID: crashes, Image: c.Image, Boot: engine.Boot{Config: config(t, crashes)}}, dir)
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), `its kernel crashed: "panic: made by a test"`) {
		t.Errorf("Restore returned %v, want the crash message", err)
	}
	if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("sandboxes left: %v %v", list, err)
	}
}

// config returns the configuration of a sandbox's guest.
func config(t *testing.T, id string) []byte {
	t.Helper()
	config, err := json.Marshal(guest.Config{
		SandboxID: id, Hostname: id, TemplateID: "base", AccessToken: "a", ControlToken: "b", DefaultUser: "user",
		MemoryBytes: 1 << 30, MilliCPU: 2000, DiskBytes: 1 << 30, PIDs: 512, Renew: guest.Copied,
	})
	if err != nil {
		t.Fatal(err)
	}
	return config
}
