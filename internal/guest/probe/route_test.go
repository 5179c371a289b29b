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

// inEmptyNetwork runs f in a network without any route.
func inEmptyNetwork(t *testing.T, f func() error) error {
	t.Helper()
	hosttest.Need(t, hosttest.Root)
	done := make(chan error)
	go func() {
		// The thread cannot leave that network. It ends with this goroutine, because it is locked
		// to it.
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
		t.Errorf("with a loopback interface: got %v", err)
	}
	if err := inEmptyNetwork(t, func() error { return route(address) }); !errors.Is(err, errUnroutable) {
		t.Errorf("without an interface: got %v", err)
	}
	for _, wrong := range []string{"", "example.com:80", "[::1]:9"} {
		if err := route(wrong); err == nil || errors.Is(err, errUnroutable) {
			t.Errorf("%q: got %v, want another error", wrong, err)
		}
	}
}

// A route to the outside means that a sandbox without a network has one.
func TestOffline(t *testing.T) {
	if err := inEmptyNetwork(t, func() error { return checkOffline(t.Context()) }); err != nil {
		t.Errorf("without a route: got %v", err)
	}
	hosttest.Need(t, hosttest.Requirement{Name: "route to the outside", Has: func() bool { return !errors.Is(route(unusedAddress), errUnroutable) }})
	if err := Run(t.Context(), Checks{Offline: true}, nil); err == nil || !strings.Contains(err.Error(), "a route out") {
		t.Errorf("with a route: got %v", err)
	}
}

// The check of a datagram does not wait for an answer if a connection that was tried later is
// settled.
func TestDatagramCheckDoesNotWait(t *testing.T) {
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	// A check that waits is slow each time, a busy machine only sometimes.
	took := tryTimeout
	for tries := 0; took >= tryTimeout && tries < 20; tries++ {
		started := time.Now()
		if err := Run(t.Context(), Checks{Dropped: []string{silent.LocalAddr().String()}, Refused: []string{closedPort(t)}}, nil); err != nil {
			t.Fatal(err)
		}
		took = min(took, time.Since(started))
	}
	if took >= tryTimeout {
		t.Errorf("took %v, want less than %v", took, tryTimeout)
	}
	// The datagram was sent nevertheless.
	if err := silent.SetReadDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	if n, _, err := silent.ReadFrom(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("sent datagram: got %d bytes, %v, want 1", n, err)
	}
}

// An answer that has arrived is found even if the check does not wait.
func TestAnsweredDatagramIsFound(t *testing.T) {
	at := echo(t)
	d, err := send(at)
	if err != nil {
		t.Fatal(err)
	}
	poll(t.Context(), d.fd, unix.POLLIN)
	if err := d.checkUnanswered(t.Context(), true); err == nil || !strings.Contains(err.Error(), "was answered") {
		t.Errorf("check of an answered datagram: got %v, want an error", err)
	}
}
