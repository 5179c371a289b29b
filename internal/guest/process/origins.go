package process

import (
	"sync"

	"github.com/crannog/crannog/internal/guest/census"
	"github.com/crannog/crannog/internal/guest/lineage"
)

// origins are the commands by their marks, so that a process can be named with
// the command that it descends from, also after that has ended.
type origins struct {
	mu    sync.Mutex
	known map[lineage.Mark]census.Command
	full  int // how many there may be before those without a process are forgotten
}

// minOrigins is how many are kept whether or not they have a process.
const minOrigins = 256

// add notes a command that has just been started.
func (o *origins) add(mark lineage.Mark, c census.Command) {
	if mark == lineage.None {
		return
	}
	c.Shorten() // else it holds all that the request had
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil {
		o.known, o.full = map[lineage.Mark]census.Command{}, minOrigins
	}
	if len(o.known) >= o.full {
		o.forget()
		// Each look at all processes is paid for by as many starts as are kept.
		o.full = max(minOrigins, 2*len(o.known))
	}
	o.known[mark] = c
}

// forget drops the commands of which no process is left. o.mu must be held.
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

// originOf names a command that a caller had run.
func originOf(p *process) census.Command {
	c := census.Command{PID: p.pid, Args: append([]string{p.config.GetCmd()}, p.config.GetArgs()...)}
	if p.tag != nil {
		c.Tag = *p.tag
	}
	return c
}

// NameOrigins names for each process the command that it descends from. What a
// caller had run, and a worker of the code interpreter, are their own.
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
			// Of a list that is cut, what is missing may run.
			p.Command.Ended = !runs[marks[i]] && !c.Cut
		}
	}
}
