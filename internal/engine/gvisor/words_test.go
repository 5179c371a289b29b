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
	"github.com/crannog/crannog/internal/hosttest"
)

// crashSyscall ends the kernel of a box that goes on from a state, in this
// test's program alone.
const crashSyscall = 1998

func init() {
	for _, table := range []*sentry.SyscallTable{linux.AMD64, linux.ARM64} {
		table.Table[crashSyscall] = sentry.Syscall{Name: "crash", SupportLevel: sentry.SupportFull, Fn: crash}
	}
}

func crash(t *sentry.Task, _ uintptr, _ arch.SyscallArguments) (uintptr, *sentry.SyscallControl, error) {
	if t.Kernel().CheckpointGen().Restore {
		panic("made by a test")
	}
	return 0, nil, nil
}

// Whoever asked for a box whose kernel crashed is told what it said.
func TestCrashIsTold(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	c := enginetest.Config{Open: open(false), Root: root(t)}
	dir := c.Saved(t, `setsid python3 -c '
import ctypes
call = ctypes.CDLL(None).syscall
call(1998)
open("/tmp/begun", "w").close()
while True: call(1998)' >/dev/null 2>&1 </dev/null &
while ! [ -e /tmp/begun ]; do sleep 0.01; done`)
	e := c.Open(t, t.TempDir())
	config, err := json.Marshal(guest.Config{
		SandboxID: "crashes", TemplateID: "base", AccessToken: "a", ControlToken: "b", DefaultUser: "user",
		MemoryBytes: 1 << 30, MilliCPU: 2000, DiskBytes: 1 << 30, PIDs: 512, Renew: guest.Copied,
	})
	if err != nil {
		t.Fatal(err)
	}
	err = e.(engine.Checkpointer).Restore(t.Context(), engine.Spec{ID: "crashes", Root: c.Root, GuestConfig: config}, dir)
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), `its kernel crashed: "panic: made by a test"`) {
		t.Errorf("got %v", err)
	}
	if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("left: %v %v", list, err)
	}
}
