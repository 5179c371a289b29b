package probe

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/hosttest"
)

// nowhere runs f in a network without any route.
func nowhere(t *testing.T, f func() error) error {
	t.Helper()
	hosttest.Need(t, hosttest.Root)
	done := make(chan error)
	go func() {
		// The thread stays in that network, so it ends with this goroutine.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func TestRoute(t *testing.T) {
	const address = "127.0.0.1:9"
	if err := route(address); err != nil {
		t.Errorf("with a loopback: %v", err)
	}
	if err := nowhere(t, func() error { return route(address) }); !errors.Is(err, errUnroutable) {
		t.Errorf("without: %v", err)
	}
	for _, wrong := range []string{"", "example.com:80", "[::1]:9"} {
		if err := route(wrong); err == nil || errors.Is(err, errUnroutable) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// Where there is a route, a sandbox that must be offline is not.
func TestOffline(t *testing.T) {
	if err := nowhere(t, func() error { return offline(t.Context()) }); err != nil {
		t.Errorf("without a route: %v", err)
	}
	hosttest.Need(t, hosttest.Ability{Name: "route to the outside", Has: func() bool { return !errors.Is(route(elsewhere), errUnroutable) }})
	if err := Run(t.Context(), Checks{Offline: true}); err == nil || !strings.Contains(err.Error(), "a way out") {
		t.Errorf("with one: %v", err)
	}
}
