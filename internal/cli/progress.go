package cli

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// patience is how long nothing is said about a wait.
const patience = 300 * time.Millisecond

// note says something on standard error, unless asked to be quiet.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.Stderr, "crannog: "+format+"\n", args...)
	}
}

// progress shows text on a terminal if the wait is long, and takes it away
// again when the returned function is called.
func (a *app) progress(text string) func() {
	f, ok := a.Stderr.(*os.File)
	if !ok || a.quiet || a.json || !isTerminal(f) || a.variable("TERM") == "dumb" {
		return func() {}
	}
	var mu sync.Mutex
	shown, over := false, false
	timer := time.AfterFunc(patience, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			shown = true
			fmt.Fprintf(f, "crannog: %s…", text)
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		if over = true; shown {
			fmt.Fprint(f, "\r\x1b[K")
			shown = false
		}
	}
}
