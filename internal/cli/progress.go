package cli

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// progressDelay is the time before a wait shows a text.
const progressDelay = 300 * time.Millisecond

// progress shows text on a terminal if the wait is long. The returned function removes it.
func (a *app) progress(text string) func() {
	p := a.newProgress()
	if p == nil {
		return func() {}
	}
	timer := time.AfterFunc(progressDelay, func() { p.show(text) })
	return func() {
		timer.Stop()
		p.end()
	}
}

// progressLine is a line on a terminal that explains why the command waits.
type progressLine struct {
	out *os.File

	mu    sync.Mutex
	shown string
	ended bool
}

// newProgress returns a line without text, or nil if none should be shown.
func (a *app) newProgress() *progressLine {
	f, ok := a.Stderr.(*os.File)
	if !ok || a.quiet || a.json || !isTerminal(f) || a.variable("TERM") == "dumb" {
		return nil
	}
	return &progressLine{out: f}
}

// show replaces the text of the line.
func (p *progressLine) show(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || text == p.shown {
		return
	}
	if p.shown != "" {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	p.shown = text
	fmt.Fprintf(p.out, "crannog: %s…", text)
}

// end removes the line.
func (p *progressLine) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended = true; p.shown != "" {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = ""
	}
}
