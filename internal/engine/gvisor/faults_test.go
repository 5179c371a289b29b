package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"gvisor.dev/gvisor/pkg/urpc"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/relay"
)

// Causes that a user can change have a code and a hint of their own.
func TestFaultsOfStart(t *testing.T) {
	users, root := &Engine{rootless: true}, &Engine{}
	for name, c := range map[string]struct {
		got  error
		code string
		hint bool
	}{
		"users may not create namespaces":      {users.startFault(&os.PathError{Op: "fork/exec", Err: syscall.EPERM}), "user_namespaces_unavailable", true},
		"the limit of namespaces is reached":   {users.startFault(syscall.EUSERS), "user_namespaces_unavailable", true},
		"a fault of the program, as a user":    {users.startFault(syscall.ENOENT), "internal", false},
		"a permission that root does not have": {root.startFault(syscall.EPERM), "internal", false},
		"too slow":                             {root.explain("x", fmt.Errorf("wait: %w", context.DeadlineExceeded)), "create_timeout", false},
		"canceled":                             {root.explain("x", context.Canceled), "canceled", false},
		"gVisor may not create namespaces":     {users.explain("x", errors.New("clone: operation not permitted")), "user_namespaces_unavailable", true},
		"the same as root":                     {root.explain("x", errors.New("clone: operation not permitted")), "engine_failed", false},
		"a fault stays as it is":               {root.explain("x", fault.New(fault.Invalid, "known", "known")), "known", false},
	} {
		if fault.CodeOf(c.got) != c.code || (fault.HintOf(c.got) != "") != c.hint {
			t.Errorf("%s: got %v with the code %q, want the code %q, hint %v", name, c.got, fault.CodeOf(c.got), c.code, c.hint)
		}
	}
}

func TestFaultsOfDial(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code string
	}{
		"no descriptor is left":       {errors.New("portforward: " + noDescriptor), "descriptors_exhausted"},
		"nothing listens":             {relay.ErrRefused, fault.CodeOf(engine.PortClosed(80, nil))},
		"the relay does not listen":   {urpc.RemoteError{Message: "connection refused"}, fault.CodeOf(engine.HasStopped("x", nil))},
		"the kernel closed the call":  {io.EOF, fault.CodeOf(engine.HasStopped("x", nil))},
		"the kernel's socket is gone": {syscall.ENOENT, fault.CodeOf(engine.HasStopped("x", nil))},
		"another error":               {errors.New("refused by something else"), "internal"},
	} {
		if got := dialFault("x", 80, c.err); fault.CodeOf(got) != c.code {
			t.Errorf("%s: got %v with the code %q, want %q", name, got, fault.CodeOf(got), c.code)
		}
	}
}

// A sandbox's kernel writes its crash message itself, so a link in its place must not be followed,
// or the message would be the content of another file of the host.
func TestCrashMessageIsOfKernelOnly(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"a message":  {func(path string) error { return os.WriteFile(path, []byte("\npanic: here\ngoroutine 1\n"), 0o600) }, "panic: here"},
		"none":       {func(string) error { return nil }, ""},
		"a link":     {func(path string) error { return os.Symlink("/etc/passwd", path) }, ""},
		"a FIFO":     {func(path string) error { return syscall.Mkfifo(path, 0o600) }, ""},
		"a folder":   {func(path string) error { return os.Mkdir(path, 0o700) }, ""},
		"no newline": {func(path string) error { return os.WriteFile(path, []byte("fatal error"), 0o600) }, "fatal error"},
	} {
		b := &instance{dir: t.TempDir()}
		if err := c.make(filepath.Join(b.dir, crashOutputName)); err != nil {
			t.Fatal(err)
		}
		if got := b.crashMessage(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
