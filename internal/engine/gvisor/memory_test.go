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
func TestMemoryThatIsNotTold(t *testing.T) {
	for name, told := range map[string]bool{"told": true, "not told": false} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "/bin/cat")
			if _, err := cmd.StdinPipe(); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			b := actedKernel(t, func(string) bool { return true })
			if !told {
				b.conns.setSocket(b.dir + "/none")
			}
			b.rec.Limits = engine.DefaultLimits
			b.rec.Sentry = processOf(cmd.Process.Pid)
			// On a busy machine the report may be late.
			timeout := hosttest.Patience(hosttest.Hang)
			window, over := time.After(8*memoryInterval), hosttest.Late()
			if told {
				over = window
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
				if told {
					t.Error("it was ended")
				}
			case <-over:
				if !told {
					t.Error("it does not end")
				}
			}
			if alive := b.rec.Sentry.Alive(); alive != told {
				t.Errorf("alive: %t", alive)
			}
			if exit := b.rec.Exit; (exit == nil) != told || exit != nil && exit.Reason != engine.ReasonOOM {
				t.Errorf("exit: %+v", exit)
			}
			close(b.done)
			<-watched
			_ = cmd.Process.Kill() // control: it may have ended
			_ = cmd.Wait()
		})
	}
}
