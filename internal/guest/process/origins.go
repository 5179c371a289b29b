package process

import (
	"sync"

	"github.com/crannog/crannog/internal/guest/census"
	"github.com/crannog/crannog/internal/guest/lineage"
)

// origins are commands by their marks, so that a process can be shown with the command that it
// descends from, even after that has ended.
type origins struct {
	mu    sync.Mutex
	known map[lineage.Mark]census.Command
	full  int // the number at which those without a process are removed
}

// minOrigins is how many are kept even without a process.
const minOrigins = 256

// add adds a command that was just started.
func (o *origins) add(mark lineage.Mark, c census.Command) {
	if mark == lineage.None {
		return
	}
	c.Shorten() // otherwise it keeps the whole request in memory
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil {
		o.known, o.full = map[lineage.Mark]census.Command{}, minOrigins
	}
	if len(o.known) >= o.full {
		o.forget()
		// Each listing of all processes is paid for by as many starts as are kept.
		o.full = max(minOrigins, 2*len(o.known))
	}
	o.known[mark] = c
}

// forget removes the commands without a process. o.mu must be held.
func (o *origins) forget() {
	live := map[lineage.Mark]bool{}
	if _, err := census.Belonging(procDir, func(pid int) bool { live[lineage.Of(pid)] = true; return false }); err != nil {
		return
	}
	for mark := range o.known {
		if !live[mark] {
			delete(o.known, mark)
		}
	}
}

// of returns the command with a mark.
func (o *origins) of(mark lineage.Mark) (census.Command, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c, ok := o.known[mark]
	return c, ok
}

// originOf describes a command that a caller had run.
func originOf(p *process) census.Command {
	c := census.Command{PID: p.pid, Args: append([]string{p.config.GetCmd()}, p.config.GetArgs()...)}
	if p.tag != nil {
		c.Tag = *p.tag
	}
	return c
}

// NameOrigins adds to each process the command that it descends from. A command that a caller had
// run, and a worker of the code interpreter, are their own.
func (s *Service) NameOrigins(c *census.Census) {
	runs := map[lineage.Mark]bool{}
	marks := make([]lineage.Mark, len(c.Processes))
	for i := range c.Processes {
		p := &c.Processes[i]
		marks[i] = lineage.Of(p.PID)
		if command, ok := s.origins.of(marks[i]); ok {
			p.Command = &command
			runs[marks[i]] = runs[marks[i]] || command.PID == p.PID
		}
	}
	for i, p := range c.Processes {
		if p.Command != nil {
			// If the list is cut, missing processes may be running.
			p.Command.Ended = !runs[marks[i]] && !c.Cut
		}
	}
}
