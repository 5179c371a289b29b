package sandbox

import (
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// Stored is a snapshot as it is stored, with all properties that a sandbox created from it must
// share.
type Stored struct {
	Snapshot
	// Sum is the digest of its image. It is empty while the snapshot is still being written, when no
	// caller can see the snapshot.
	Sum       string
	Base      Base
	Limits    Limits
	Workspace string
	Access    Access
	// Process is the process that writes it.
	Process Process
	// KeptFor is the version of a template to which it belongs, or "". Callers do not see snapshots
	// that belong to templates.
	KeptFor string
}

// SavedState returns the state from which a sandbox of the snapshot is restored.
func (n Stored) SavedState() Saved {
	return Saved{Image: n.ID, Sum: n.Sum, FilesOnly: n.FilesOnly, Format: n.Format, Needs: n.Base.Needs}
}

// WorkspaceFor returns the workspace of a sandbox created from the snapshot. It rejects a request
// that does not match the saved instance.
func (n *Stored) WorkspaceFor(asked Limits, workspace string) (string, error) {
	if n == nil {
		return workspace, nil
	}
	// The memory of a template has no workspace of its own.
	added := n.KeptFor != "" && n.Base.TakesWorkspace && n.Workspace == ""
	if workspace != "" && workspace != n.Workspace && !added {
		return "", fault.New(fault.Invalid, "snapshot_workspace", "the workspace of a snapshot cannot be changed").
			WithHint("omit the workspace")
	}
	saved := n.Limits
	savedFields := saved.Fields()
	for i, f := range asked.Fields() {
		if *f.Value != 0 && *f.Value != *savedFields[i].Value && !n.FilesOnly && fixed(f.Limit) {
			return "", fault.Newf(fault.Invalid, "snapshot_limits", "the limit of %s is %s in the snapshot, and cannot be %s when its memory is restored",
				f.Name, f.Text(*savedFields[i].Value), f.Text(*f.Value)).WithHint("omit this limit")
		}
	}
	if added {
		return workspace, nil
	}
	return n.Workspace, nil
}

// Inherit sets the snapshot's limits where the request has none.
func (n *Stored) Inherit(l *Limits, asked Limits) {
	if n == nil {
		return
	}
	saved := n.Limits
	requested, savedFields := asked.Fields(), saved.Fields()
	for i, f := range l.Fields() {
		if *requested[i].Value == 0 {
			*f.Value = *savedFields[i].Value
		}
	}
}

// fixed reports whether a limit is part of the saved state of an instance.
func fixed(l engine.Limit) bool {
	return l == engine.LimitPIDs || l == engine.LimitDisk || l == engine.LimitInodes || l == engine.LimitShm
}

// CheckFits returns an error if a sandbox cannot be rolled back to the snapshot because the
// snapshot was taken of another kind of instance.
func (n Stored) CheckFits(r Row) error {
	why := ""
	switch {
	case n.TemplateID != r.TemplateID:
		why = "it was taken of a sandbox with another template"
	case n.FilesOnly:
		return nil
	case n.Engine != r.Engine:
		why = "its memory was saved by another engine"
	case !n.Base.sameRoot(r.Base) || n.Workspace != r.Workspace || n.Base.Needs == nil && n.Base.Revision != r.Base.Revision:
		why = "its files or programs differ"
	default:
		why = r.Base.Difference(n.Base)
		snapshotLimits, sandboxLimits := n.Limits, r.Limits
		snapshotFields := snapshotLimits.Fields()
		for i, f := range sandboxLimits.Fields() {
			if fixed(f.Limit) && *f.Value != *snapshotFields[i].Value {
				why = "its limit of " + f.Name + " differs"
			}
		}
	}
	if why == "" {
		return nil
	}
	return fault.Newf(fault.Invalid, "snapshot_other_machine", "the sandbox cannot be rolled back to snapshot %s: %s", n.ID, why).
		WithHint("create a new sandbox from it: crannog run --from " + n.ID)
}
