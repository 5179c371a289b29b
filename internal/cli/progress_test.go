package cli

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A long wait is shown on a terminal, and the text is removed when the wait is over.
func TestProgress(t *testing.T) {
	s := newScreen(t)
	synctest.Test(t, func(t *testing.T) {
		wait := func(a *app, d time.Duration, then string) {
			stop := a.progress("resuming a")
			time.Sleep(d)
			synctest.Wait()
			fmt.Fprint(s.tty, then)
			stop()
			time.Sleep(time.Second) // no text may appear after stop
		}
		a := newApp(Env{Stderr: s.tty})
		wait(a, progressDelay-1, "short;")
		wait(a, progressDelay, "long;")
		quiet, json := newApp(Env{Stderr: s.tty}), newApp(Env{Stderr: s.tty})
		quiet.quiet, json.json = true, true
		for _, silent := range []*app{quiet, json, newApp(Env{Stderr: s.tty, Vars: []string{"TERM=dumb"}})} {
			wait(silent, time.Minute, "silent;")
		}
		var pipe bytes.Buffer
		wait(newApp(Env{Stderr: &pipe}), time.Minute, "end")
		if pipe.Len() > 0 {
			t.Errorf("progress without a terminal printed %q", pipe.String())
		}
	})
	want := "short;crannog: resuming a…long;\r\x1b[Ksilent;silent;silent;end"
	if got := s.wait("end"); got != want {
		t.Errorf("the screen shows %q, want %q", got, want)
	}
}
