package lifecycle

import "github.com/crannog/crannog/internal/sandbox"

// process identifies this process among those that share a store.
type process struct {
	self  sandbox.Process
	alive func(sandbox.Process) bool
}

// dead reports whether a process has ended.
func (p process) dead(other sandbox.Process) bool { return other != p.self && !p.alive(other) }

// otherAlive reports whether another process runs.
func (p process) otherAlive(q sandbox.Process) bool { return q != p.self && p.alive(q) }

// abandoned reports whether the process on which the row depends is dead: the one that creates the
// sandbox, hands it out or owns it.
func (p process) abandoned(r sandbox.Row) bool {
	needs := r.State == sandbox.Creating || r.State == sandbox.Waiting || r.Ephemeral && r.State != sandbox.Stopped
	return needs && p.dead(r.Process)
}

// changedByOther reports whether another process has a sandbox in a transitional state.
func (p process) changedByOther(r sandbox.Row) bool {
	switch r.State {
	case sandbox.Creating:
		return p.otherAlive(r.Process)
	case sandbox.Pausing, sandbox.Resuming:
		return p.otherAlive(r.Actor)
	case sandbox.Waiting, sandbox.Running, sandbox.Paused, sandbox.Stopping, sandbox.Stopped:
	}
	return false
}
