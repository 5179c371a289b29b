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

// startFakeKernel returns a sandbox with a fake kernel, which calls answer for each call and
// answers if that returns true.
func startFakeKernel(t *testing.T, answer func(method string) bool) *instance {
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

// wantSignal waits for a signal.
func wantSignal(t *testing.T, event string, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-hosttest.Late():
		t.Fatalf("this does not happen: %s", event)
	}
}

// A failure to continue the events uses none of the time for resuming the sandbox.
func TestResumeAfterFailedEvents(t *testing.T) {
	resumed := make(chan struct{})
	b := startFakeKernel(t, func(method string) bool {
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
		t.Error("resumeWithin returned no error although the events could not be continued")
	}
	select {
	case <-resumed:
	default:
		t.Error("resumeWithin returned before the sandbox was resumed")
	}
}

// P46: a sandbox that pauses only after its caller gave up is resumed.
func TestLatePauseIsResumed(t *testing.T) {
	late, resumed := make(chan struct{}), make(chan struct{})
	b := startFakeKernel(t, func(method string) bool {
		switch method {
		case boot.ContMgrPause:
			<-late
		case boot.ContMgrResume:
			close(resumed)
		default:
			t.Errorf("unexpected call of %s", method)
		}
		return true
	})
	if err := b.pauseWithin(50 * time.Millisecond); err == nil {
		t.Fatal("pauseWithin returned no error for a sandbox that does not pause")
	}
	select {
	case <-resumed:
		t.Fatal("the sandbox was resumed before it was paused, which crashes gVisor")
	case <-time.After(100 * time.Millisecond):
	}
	close(late)
	wantSignal(t, "the sandbox is resumed", resumed)
	// Control: a sandbox that pauses in time stays paused.
	calls := make(chan string, 9)
	b = startFakeKernel(t, func(method string) bool { calls <- method; return true })
	if err := errors.Join(b.pauseWithin(hosttest.Patience(hosttest.Hang)), b.resume(t.Context())); err != nil || <-calls != boot.ContMgrPause || <-calls != boot.ContMgrResume {
		t.Errorf("pause and resume in time: %v", err)
	}
}
