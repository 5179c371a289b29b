package gvisor

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gvisor.dev/gvisor/runsc/boot"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// actedKernel returns a sandbox whose kernel is the function answer, which reports whether a call
// is answered at all.
func actedKernel(t *testing.T, answer func(method string) bool) *instance {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "control")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for calls := json.NewDecoder(conn); ; {
					var call struct{ Method string }
					if calls.Decode(&call) != nil {
						return
					}
					if answer(call.Method) && json.NewEncoder(conn).Encode(map[string]bool{"success": true}) != nil {
						return
					}
				}
			}()
		}
	}()
	e := &Engine{log: slog.New(slog.DiscardHandler)}
	return newInstance(e, record{ID: "box", Kernel: "k", Socket: socket}, t.TempDir())
}

func arrives(t *testing.T, what string, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-hosttest.Late():
		t.Fatalf("it does not come to it: %s", what)
	}
}

// A failure to continue the events uses none of the time for resuming the sandbox.
func TestGoesOnWithoutItsEvents(t *testing.T) {
	resumed := make(chan struct{})
	b := actedKernel(t, func(method string) bool {
		if method != boot.ContMgrResume {
			return false
		}
		time.Sleep(100 * time.Millisecond)
		close(resumed)
		return true
	})
	events, err := os.Create(filepath.Join(t.TempDir(), "events"))
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	if err := b.resumeWithin(t.Context(), engine.Spec{Events: events}, hosttest.Patience(time.Second)); err == nil {
		t.Error("events that were not gone on with are no error")
	}
	select {
	case <-resumed:
	default:
		t.Error("the call returned before the box continued")
	}
}

// P46: a sandbox that pauses only after its caller gave up is resumed.
func TestStandsStillTooLate(t *testing.T) {
	late, resumed := make(chan struct{}), make(chan struct{})
	b := actedKernel(t, func(method string) bool {
		switch method {
		case boot.ContMgrPause:
			<-late
		case boot.ContMgrResume:
			close(resumed)
		default:
			t.Errorf("it was asked for %s", method)
		}
		return true
	})
	if err := b.pauseWithin(50 * time.Millisecond); err == nil {
		t.Fatal("it is told as standing still")
	}
	select {
	case <-resumed:
		t.Fatal("it was told to go on while it ran: gVisor falls over such a call")
	case <-time.After(100 * time.Millisecond):
	}
	close(late)
	arrives(t, "the box continues", resumed)
	// Control: a sandbox that pauses in time stays paused.
	calls := make(chan string, 9)
	b = actedKernel(t, func(method string) bool { calls <- method; return true })
	if err := errors.Join(b.pauseWithin(hosttest.Patience(hosttest.Hang)), b.resume(t.Context())); err != nil || <-calls != boot.ContMgrPause || <-calls != boot.ContMgrResume {
		t.Errorf("in time: %v", err)
	}
}
