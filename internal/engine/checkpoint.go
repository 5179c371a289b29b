package engine

import (
	"context"
	"io"

	"github.com/crannog/crannog/internal/state/hostfiles"
)

// Checkpointer is the ability to save the whole state of a running sandbox (memory, processes,
// files, listeners) and to continue from it.
type Checkpointer interface {
	// Format names what writes the state.
	Format() string

	// Restores reports whether the engine restores a state of a format: its own, and those of
	// earlier versions that it still knows. A state of another format is refused before a restore
	// is tried.
	Restores(format string) bool

	// Parts lists the files of which a state consists, under names that the engine
	// chooses. Exactly one of them is not small.
	Parts() []Part

	// Checkpoint writes the parts into dir, an empty directory of the caller's. The sandbox is
	// paused during the call and continues afterwards, also after an error, unless something else
	// ended it. The caller removes dir when it no longer needs the state.
	Checkpoint(ctx context.Context, id, dir string) error

	// Restore is like Create, but the sandbox continues from the state in dir. A
	// state may be restored any number of times and under any ID. Limits for memory
	// and CPU may differ from those of the checkpoint. The root, the workspace, the
	// path masks, and the limits for processes and files may not. Streams that led
	// into the sandbox are gone; its guest reads spec.Boot again.
	Restore(ctx context.Context, spec Spec, dir string) error

	// Replace exchanges the sandbox with the same ID for a restored one, or for a new
	// one if dir is "". All that can fail before the old one has to stop is done
	// first, so that after most errors the old one continues. After an error with the
	// code "replace_failed", no sandbox has that ID.
	Replace(ctx context.Context, spec Spec, dir string) error
}

// PartKind is the way in which a part of a saved state is stored.
type PartKind string

// Kinds of parts.
const (
	// PartSmall is a file of at most 256 MiB, which is read and verified whole before
	// each restore.
	PartSmall PartKind = "small"
	// PartPages is a file of memory in pages of 4096 bytes. States of one lineage share equal
	// pages.
	PartPages PartKind = "pages"
	// PartBlob is any other file.
	PartBlob PartKind = "blob"
)

// Part is a file of a saved state.
type Part struct {
	Name string
	Kind PartKind
}

// Binder is the ability to find out which files of the host a saved state refers to.
type Binder interface {
	// CheckpointBound is like Checkpoint, and also returns which binds of a HostView the state
	// refers to: files that programs have open or mapped, and directories. The caller closes the
	// result. If the engine cannot determine them, bound is false, and the state is written all the
	// same.
	CheckpointBound(ctx context.Context, id, dir string) (list Bound, bound bool, err error)
}

// Bound is what a saved state refers to: the list of the files, and an open descriptor of each, in
// the same order.
type Bound struct {
	Files []hostfiles.File
	Open  hostfiles.List
}

// Archiver is the ability to write down the files of a sandbox alone,
// in a form that does not depend on the engine.
type Archiver interface {
	// Archive writes a tar of all that the sandbox has changed below its root to w.
	// The sandbox keeps running. A deleted file is a character device 0:0 of that
	// name, as in an overlay. The workspace and masked paths are part of it only
	// where the sandbox has written. An engine may leave holes for zeros where w is a
	// regular file, and may hand such a file on to the process that writes.
	Archive(ctx context.Context, id string, w io.Writer) error

	// Extract writes the same tar from the state that Checkpoint left in dir, for a sandbox like
	// spec. No sandbox remains afterwards. The programs of the state have no network during the
	// call.
	Extract(ctx context.Context, spec Spec, dir string, w io.Writer) error
}

// Bare returns the specification without what a sandbox is given only when it starts. Sandboxes of
// one kind have the rest in common.
func (s Spec) Bare() Spec {
	s.ID, s.Hostname, s.Boot, s.Egress = "", "", Boot{}, Egress{}
	s.Events, s.EventBytes, s.Unhurried = nil, 0, false
	return s
}

// Prestarted is how many kernels are to be ready for sandboxes like Spec. Only the fields of Spec that
// Bare keeps matter.
type Prestarted struct {
	Spec  Spec
	Count int
}

// Warmer is the ability to do in advance what Create, Restore and Replace of
// sandboxes of one kind have in common.
type Warmer interface {
	// Pace sets the function that the engine calls before it makes a kernel in advance. The
	// function reports whether the engine may do so now, and returns what to call when the kernel
	// is made. Without Pace, the engine always may. Pace is called once, before Warm.
	Pace(turn func() (done func(), ok bool))
	// Warm keeps these kernels ready and no others; an empty list drops all of them. It returns at
	// once: kernels are made one by one in the background, those of the first kind first.
	Warm(wanted []Prestarted)
}
