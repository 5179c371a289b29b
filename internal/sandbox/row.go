package sandbox

import (
	"slices"
	"time"

	"github.com/crannog/crannog/internal/packages/lockfile"
)

// Row is a sandbox as it is stored.
type Row struct {
	Sandbox
	// ControlToken opens the guest's control service. It never leaves the server.
	ControlToken string
	// Process created the sandbox, and owns it if it is ephemeral.
	Process Process
	// Actor is the process that performs the change of a transitional state: pausing, resuming.
	Actor Process
	// CreateTimeout is the lifetime that the creation requested; zero is without end.
	CreateTimeout time.Duration
	// Run counts the sandbox's instances, so that the end of one instance is not mistaken for the
	// end of the next.
	Run  int64
	Base Base
	// Saved is the state from which the sandbox is resumed.
	Saved Saved
	// Pending describes the replacement of a running sandbox's instance: ToStart, the ID of a
	// snapshot, or "" if there is no replacement.
	Pending string
	// Locked is the set that Base.Locked identifies. It is only set in a new row, and stored with
	// it.
	Locked *lockfile.Set
}

// ToStart is the Row.Pending of a sandbox that is reset to its template.
const ToStart = "start"

// Shown returns the sandbox in the form that callers see. The end of a paused sandbox is the time
// of its pause. A sandbox that ended while it was paused shows only its end.
func (r Row) Shown() Sandbox {
	r.ImageDigest = r.Base.ImageDigest
	r.Tracked, r.Tools, r.Keys = r.Base.tracked(), r.Base.toolsShown(), r.Base.Keys
	r.Mounts, r.Volumes, r.Notes, r.Saves = r.Base.Mounts, r.Base.Volumes, r.Base.Notes, r.Base.Saves
	r.Attachment, r.Containers, r.Unseen = r.Base.Attachment, r.Base.Containers, r.Base.Unseen
	r.Sandbox.FilesOnly = r.State == Paused && r.Saved.FilesOnly
	r.Needs = nil
	if r.State == Paused {
		r.Needs = r.Saved.Needs
	}
	if r.State == Stopping || r.State == Stopped {
		r.PausedAt = time.Time{}
	}
	if !r.PausedAt.IsZero() {
		r.EndAt = r.PausedAt
	}
	return r.Sandbox
}

// EndIn returns the end of a sandbox that lives for d from now. Zero stands for the lifetime that
// its creation requested, and the zero time for no end.
func (r Row) EndIn(d time.Duration) time.Time {
	if d == 0 {
		d = r.CreateTimeout
	}
	if d == 0 {
		return time.Time{} // created without an end
	}
	return time.Now().UTC().Round(0).Add(d)
}

// GuestEnd returns when the guest ends the sandbox by itself. A sandbox that pauses at its end must
// not be ended instead, so its guest has no end.
func (r Row) GuestEnd() time.Time {
	if r.OnEnd.Pause {
		return time.Time{}
	}
	return r.EndAt
}

// Hostname returns the host name inside.
func (r Row) Hostname() string {
	if r.Name != "" {
		return r.Name
	}
	return r.ID
}

// SuspendedStates are the states in which traffic may resume a sandbox.
var SuspendedStates = []State{Pausing, Paused, Resuming}

// WakesOnTraffic reports whether traffic may resume the sandbox. A sandbox that was paused without
// its memory would boot again, which only its owner may decide.
func (r Row) WakesOnTraffic() bool {
	return r.OnEnd.Wake && !r.Saved.FilesOnly && slices.Contains(SuspendedStates, r.State)
}

// ShowsHost reports whether host files that a caller named are mounted in the sandbox.
func (r Row) ShowsHost() bool { return r.Workspace != "" || len(r.Base.Mounts) > 0 }
