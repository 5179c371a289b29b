package gvisor

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// silentKernel starts a kernel that accepts calls and never answers, and returns its control
// socket.
func silentKernel(t *testing.T) (socket string) {
	return startFakeKernel(t, func(string) bool { return false }).rec.Socket
}

// errCallerLeft is the cause with which the tests cancel a context.
var errCallerLeft = errors.New("the caller left")

// wantEndWithContext checks that a call ends when its context ends, with the context's cause.
func wantEndWithContext(t *testing.T, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- call(ctx) }()
	select {
	case err := <-ended:
		t.Fatalf("the call returned %v before its context ended", err)
	case <-time.After(100 * time.Millisecond):
	}
	cancel(errCallerLeft)
	select {
	case err := <-ended:
		if !errors.Is(err, errCallerLeft) {
			t.Errorf("the call returned %v, want the cause of the context", err)
		}
	case <-hosttest.Late():
		t.Fatal("the call does not end with its context")
	}
}

// A call to a paused kernel ends with its context.
func TestCallEndsWithItsContext(t *testing.T) {
	before := descriptors(t)
	t.Run("pool", func(t *testing.T) {
		conns := controlConns{socket: silentKernel(t)}
		wantEndWithContext(t, func(ctx context.Context) error { return conns.call(ctx, boot.ContMgrPause, nil, nil) })
		if len(conns.idle) != 0 {
			t.Error("the connection is back in the pool, so the next call could get a late answer")
		}
	})
	t.Run("kernel", func(t *testing.T) {
		k := &kernel{b: &instance{rec: record{Socket: silentKernel(t)}}}
		wantEndWithContext(t, func(ctx context.Context) error {
			return k.call(ctx, func(conn *urpc.Client) error { return conn.Call(boot.ContMgrPause, nil, nil) })
		})
	})
	t.Run("none accepted", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "control")
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: socket}), unix.Listen(fd, 0)); err != nil {
			t.Fatal(err)
		}
		first, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		conns := controlConns{socket: socket}
		wantEndWithContext(t, func(ctx context.Context) error { return conns.call(ctx, boot.ContMgrPause, nil, nil) })
	})
	hosttest.EventuallyAtMost(t, "descriptors", before, func() int { return descriptors(t) })
}

// descriptors returns the number of open descriptors.
func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
