package interpreter

import (
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// mortalStarter kills the first workers at once.
type mortalStarter struct {
	plainStarter
	die     int64
	started atomic.Int64
}

func (s *mortalStarter) Start(cmd *exec.Cmd) (Process, error) {
	p, err := s.plainStarter.Start(cmd)
	if err == nil && s.started.Add(1) <= s.die {
		err = p.Signal(syscall.SIGKILL)
	}
	return p, err
}

// A worker that dies while it starts is started again, but not forever: a sandbox waits for it.
func TestPreloadStartsAgain(t *testing.T) {
	for die, want := range map[int64]int64{0: 1, 1: 2, 9: preloadTries} {
		b := newTestServer(t)
		starter := &mortalStarter{die: die}
		b.server.opts.Starter = starter
		err := b.server.Preload(t.Context(), "python")
		if started := starter.started.Load(); started != want {
			t.Errorf("%d die: %d were started, want %d", die, started, want)
		}
		if (err == nil) != (die < preloadTries) || err != nil && fault.CodeOf(err) != "worker_not_started" {
			t.Errorf("%d die: %v", die, err)
		}
		sess, findErr := b.server.byLanguage("python")
		if findErr != nil {
			t.Fatal(findErr)
		}
		if ready := sess.worker != nil && sess.worker.alive(); ready != (err == nil) {
			t.Errorf("%d die: a worker is ready: %t", die, ready)
		}
	}
}
