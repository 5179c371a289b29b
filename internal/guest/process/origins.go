package process

import (
	"sync"

	"github.com/crannog/crannog/internal/guest/census"
	"github.com/crannog/crannog/internal/guest/lineage"
)

// origins maps marks to commands, so that a process can be listed with the command from which it
// descends, even after that command has ended.
type origins struct {
	mu       sync.Mutex
	commands map[lineage.Mark]census.Command
	limit    int // at this number, commands without a process are removed
}

// minOrigins is the number of commands that are stored even if they have no process.
const minOrigins = 256

// add adds a command that was just started.
func (o *origins) add(mark lineage.Mark, c census.Command) {
	if mark == lineage.None {
		return
	}
	c.Shorten() // otherwise it would keep the whole request in memory
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.commands == nil {
		o.commands, o.limit = map[lineage.Mark]census.Command{}, minOrigins
	}
	if len(o.commands) >= o.limit {
		o.removeEnded()
		// Listing all processes is slow, so the next removal is due only when the number of
		// commands has doubled.
		o.limit = max(minOrigins, 2*len(o.commands))
	}
	o.commands[mark] = c
}

// removeEnded removes the commands that have no process. o.mu must be held.
func (o *origins) removeEnded() {
	live := map[lineage.Mark]bool{}
	if _, err := census.Belonging(procDir, func(pid int) bool { live[lineage.Of(pid)] = true; return false }); err != nil {
		return
	}
	for mark := range o.commands {
		if !live[mark] {
			delete(o.commands, mark)
		}
	}
}

// find returns the command with a mark.
func (o *origins) find(mark lineage.Mark) (census.Command, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c, ok := o.commands[mark]
	return c, ok
}

// originOf describes a command that a caller started.
func originOf(p *process) census.Command {
	c := census.Command{PID: p.pid, Args: append([]string{p.config.GetCmd()}, p.config.GetArgs()...)}
	if p.tag != nil {
		c.Tag = *p.tag
	}
	return c
}

// NameOrigins adds to each process the command from which it descends. A command that a caller
// started, and a worker of the code interpreter, descend from themselves.
func (s *Service) NameOrigins(c *census.Census) {
	runs := map[lineage.Mark]bool{}
	marks := make([]lineage.Mark, len(c.Processes))
	for i := range c.Processes {
		p := &c.Processes[i]
		marks[i] = lineage.Of(p.PID)
		if command, ok := s.origins.find(marks[i]); ok {
			p.Command = &command
			runs[marks[i]] = runs[marks[i]] || command.PID == p.PID
		}
	}
	for i, p := range c.Processes {
		if p.Command != nil {
			// If the list is incomplete, the command's process may still be running.
			p.Command.Ended = !runs[marks[i]] && !c.Cut
		}
	}
}
