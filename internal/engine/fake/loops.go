package fake

import (
	"context"
	"time"
)

// loop is a while loop that runs in the background. It continues in a copy of its sandbox, with the
// same variables.
type loop struct {
	Source    string
	Variables map[string]string
	User, Cwd string
}

// background starts a loop in the background. The caller holds turn and one.
func (p *processes) background(l loop, n *node) {
	s := &session{b: p.b, ctx: context.Background(), user: l.User, cwd: l.Cwd, variables: l.Variables, background: true}
	s.pid = int(p.last.Add(1)) + 1
	s.parent, s.command = 1, s.pid
	p.b.loops[&l] = true
	go func() {
		for active := true; active; {
			p.b.turn.RLock()
			p.b.one.Lock()
			code, err := p.eval(s, n.left)
			if err == nil && code == 0 {
				_, err = p.eval(s, n.right)
			}
			active = err == nil && code == 0 && p.b.running()
			if !active {
				delete(p.b.loops, &l)
			}
			s.out.Reset()
			s.err.Reset()
			p.b.one.Unlock()
			p.b.turn.RUnlock()
			if active {
				_ = s.sleep(max(s.nap, time.Millisecond)) // the next iteration notices the end of the sandbox
				s.nap = 0
			}
		}
	}()
}

// restart continues the loops of a saved state.
func (p *processes) restart(loops []loop) error {
	p.b.one.Lock()
	defer p.b.one.Unlock()
	for _, l := range loops {
		n, err := parse(l.Source)
		if err != nil {
			return err
		}
		if l.Variables == nil {
			l.Variables = map[string]string{}
		}
		p.background(l, n)
	}
	return nil
}
