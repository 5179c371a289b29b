package interpreter

import (
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// killingStarter kills the first workers at once.
type killingStarter struct {
	plainStarter
	deaths  int64
	started atomic.Int64
}

func (s *killingStarter) Start(cmd *exec.Cmd) (Process, error) {
	p, err := s.plainStarter.Start(cmd)
	if err == nil && s.started.Add(1) <= s.deaths {
		err = p.Signal(syscall.SIGKILL)
	}
	return p, err
}

// A worker that ends during its start is started again, but only once, because a sandbox waits for
// it.
func TestPreloadRetriesOnce(t *testing.T) {
	for deaths, want := range map[int64]int64{0: 1, 1: 2, 9: maxPreloads} {
		b := newTestServer(t)
		starter := &killingStarter{deaths: deaths}
		b.server.opts.Starter = starter
		err := b.server.Preload(t.Context(), "python")
		if started := starter.started.Load(); started != want {
			t.Errorf("%d workers killed: got %d starts, want %d", deaths, started, want)
		}
		if (err == nil) != (deaths < maxPreloads) || err != nil && fault.CodeOf(err) != "worker_not_started" {
			t.Errorf("%d workers killed: got %v", deaths, err)
		}
		sess, findErr := b.server.byLanguage("python")
		if findErr != nil {
			t.Fatal(findErr)
		}
		if ready := sess.worker != nil && sess.worker.alive(); ready != (err == nil) {
			t.Errorf("%d workers killed: a worker is ready: %t", deaths, ready)
		}
	}
}
