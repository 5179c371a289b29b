package probe

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
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

// If there is a route, a sandbox that must be offline is not.
func TestOffline(t *testing.T) {
	if err := nowhere(t, func() error { return offline(t.Context()) }); err != nil {
		t.Errorf("without a route: %v", err)
	}
	hosttest.Need(t, hosttest.Requirement{Name: "route to the outside", Has: func() bool { return !errors.Is(route(unusedAddress), errUnroutable) }})
	if err := Run(t.Context(), Checks{Offline: true}, nil); err == nil || !strings.Contains(err.Error(), "a route out") {
		t.Errorf("with one: %v", err)
	}
}

// The check of a datagram without an answer does not wait if something that was sent after it is
// settled.
func TestSilenceIsNotWaitedFor(t *testing.T) {
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	// A check that waits always does; a busy machine is slow only sometimes.
	took := tryTimeout
	for tries := 0; took >= tryTimeout && tries < 20; tries++ {
		started := time.Now()
		if err := Run(t.Context(), Checks{Dropped: []string{silent.LocalAddr().String()}, Refused: []string{closed(t)}}, nil); err != nil {
			t.Fatal(err)
		}
		took = min(took, time.Since(started))
	}
	if took >= tryTimeout {
		t.Errorf("it took %v", took)
	}
	// It was sent all the same.
	if err := silent.SetReadDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	if n, _, err := silent.ReadFrom(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("%d bytes came: %v", n, err)
	}
}

// An answer is noticed even if nothing is waited for.
func TestAnswerIsSeenBesideOthers(t *testing.T) {
	at := echo(t)
	d, err := send(at)
	if err != nil {
		t.Fatal(err)
	}
	await(t.Context(), d.fd, unix.POLLIN)
	if err := d.late(t.Context(), true); err == nil || !strings.Contains(err.Error(), "was answered") {
		t.Errorf("got %v", err)
	}
}
