package gvisor

import (
	"os/exec"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// A sandbox without a group that does not report its memory is ended as if it used too much. A
// sandbox that reports continues.
func TestSandboxWithoutMemoryReportIsKilled(t *testing.T) {
	for name, reports := range map[string]bool{"reports": true, "does not report": false} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "/bin/cat")
			if _, err := cmd.StdinPipe(); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			b := startFakeKernel(t, func(string) bool { return true })
			if !reports {
				b.conns.setSocket(b.dir + "/none")
			}
			b.rec.Limits = engine.DefaultLimits
			b.rec.Sentry = processOf(cmd.Process.Pid)
			// On a busy machine the report may be late.
			timeout := hosttest.Patience(hosttest.Hang)
			window, end := time.After(8*memoryInterval), hosttest.Late()
			if reports {
				end = window
			} else {
				timeout = 2 * memoryInterval
			}
			watched := make(chan struct{})
			go func() {
				defer close(watched)
				b.watchMemory("box", timeout)
			}()
			select {
			case <-watched:
				if reports {
					t.Error("a sandbox that reports its memory was killed")
				}
			case <-end:
				if !reports {
					t.Error("a sandbox that does not report its memory was not killed")
				}
			}
			if alive := b.rec.Sentry.Alive(); alive != reports {
				t.Errorf("the kernel is alive: %t, want %t", alive, reports)
			}
			if exit := b.rec.Exit; (exit == nil) != reports || exit != nil && exit.Reason != engine.ReasonOOM {
				t.Errorf("the exit is %+v, want oom only without reports", exit)
			}
			close(b.done)
			<-watched
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()
		})
	}
}
