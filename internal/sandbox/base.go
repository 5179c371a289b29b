package sandbox

import (
	"slices"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/filetree/hosttools"
)

// Base is what a sandbox's machine was made of. It is kept, because every
// later machine of the sandbox, and of what is copied from it, must be made of
// the same: memory that was saved refers to it.
type Base struct {
	Root engine.Root `json:"root"`
	// Hide, Absent and ReadOnly are the path masks; NoRoot means that no user is root.
	Hide     []string `json:"hide,omitempty"`
	Absent   []string `json:"absent,omitempty"`
	ReadOnly []string `json:"read_only,omitempty"`
	NoRoot   bool     `json:"no_root,omitempty"`
	// Repos are the git repositories of the workspace that track hidden files.
	Repos []Repo `json:"repos,omitempty"`
	// Keys are files of the workspace that looked like keys when it was created.
	Keys Keys `json:"keys,omitzero"`
	// Tools are the directories of version managers that are shown.
	Tools []hosttools.Tree `json:"tools,omitempty"`
	// Copy is the sandbox for which the workspace was copied, "" if the
	// caller's own directory is shown.
	Copy string `json:"copy,omitempty"`
	// Mounts and Links are what is shown of the host beside the workspace, Git the
	// repository among it that the workspace belongs to. Notes are what is not
	// shown, for people.
	Mounts []Mount       `json:"mounts,omitempty"`
	Links  []engine.Link `json:"links,omitempty"`
	Git    *Shared       `json:"git,omitempty"`
	Notes  []string      `json:"notes,omitempty"`
	// Of the template.
	Env         map[string]string `json:"env,omitempty"`
	DefaultUser string            `json:"default_user,omitempty"`
	DefaultDir  string            `json:"default_dir,omitempty"`
	Revision    string            `json:"revision,omitempty"`
	// Needs is what the memory of a snapshot refers to; a sandbox has none.
	Needs *Needs `json:"needs,omitempty"`
	// Knows counts what its guest has learnt to check, up to guestKnows.
	Knows int `json:"knows,omitempty"`
}

// guestKnows is what the guest of this version has learnt: since 1 it tries
// ports, places for new files, and limits of files and processes. One that goes
// on from saved memory is asked for no more than it knows, and no more is said
// to hold.
const guestKnows = 1

// covered are the paths that every machine of the sandbox covers.
func (b Base) covered() covered {
	return covered{hide: b.Hide, absent: b.Absent, readOnly: b.ReadOnly, repos: b.Repos}
}

// sameRoot reports whether two instances start from the same files.
func (b Base) sameRoot(o Base) bool {
	return b.Root.Dir == o.Root.Dir && b.Root.Guest == o.Root.Guest && slices.Equal(b.Root.Binds, o.Root.Binds) && b.Copy == o.Copy && b.sameMounts(o)
}

// Saved is the image of a paused sandbox, or the one that is being written.
type Saved struct {
	Image     string `json:"image,omitempty"` // "" is none
	Sum       string `json:"sum,omitempty"`
	FilesOnly bool   `json:"files_only,omitempty"`
	Format    string `json:"format,omitempty"`
	// Needs is what its memory refers to. Nil is not known.
	Needs *Needs `json:"needs,omitempty"`
}

// Stored is a snapshot as it is stored: all that a sandbox made of it needs
// to be equal.
type Stored struct {
	Snapshot
	// Sum is the digest of its image. It is empty while the snapshot is still being
	// written, when no caller can see the snapshot.
	Sum       string
	Base      Base
	Limits    Limits
	Workspace string
	Access    Access
	// Process writes it.
	Process Process
}

// toStart is what Record.Pending says of a sandbox that is put back to its
// template.
const toStart = "start"

// shown is a record as callers see it. What is paused has no end ahead, and
// shows when it was paused; what has ended in its pause, only that it has.
func (r Record) shown() Sandbox {
	r.Tracked, r.Tools, r.Keys = r.Base.tracked(), r.Base.toolsShown(), r.Base.Keys
	r.Mounts, r.Notes = r.Base.Mounts, r.Base.Notes
	r.Sandbox.FilesOnly = r.State == Paused && r.Saved.FilesOnly
	if r.Needs = nil; r.State == Paused {
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

// endIn is when a sandbox ends that gets d from now; zero is its own time.
func (r Record) endIn(d time.Duration) time.Time {
	if d == 0 {
		d = r.CreateTimeout
	}
	if d == 0 {
		return time.Time{} // made to live for ever
	}
	return time.Now().UTC().Round(0).Add(d)
}

// guestEnd is when the guest ends the sandbox by itself. One that is paused in
// time must not be ended instead.
func (r Record) guestEnd() time.Time {
	if r.OnEnd.Pause {
		return time.Time{}
	}
	return r.EndAt
}
