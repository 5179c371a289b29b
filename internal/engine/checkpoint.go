package engine

import (
	"context"
	"io"

	"github.com/crannog/crannog/internal/state/hostfiles"
)

// Checkpointer is the ability to save the whole state of a running sandbox (memory, processes,
// files, listeners) and to continue from it.
type Checkpointer interface {
	// Format names the format of the saved state.
	Format() string

	// Restores reports whether the engine can restore a state of a format: the current format, or
	// one of an earlier version. Callers refuse a state of another format before they try a
	// restore.
	Restores(format string) bool

	// Parts lists the files of a saved state, under names that the engine chooses. All but one of
	// them are small.
	Parts() []Part

	// Checkpoint writes the parts into dir, an empty directory that the caller made. The sandbox is
	// paused during the call and continues afterwards, also after an error, unless something else
	// ended it. The caller removes dir when it no longer needs the state.
	Checkpoint(ctx context.Context, id, dir string) error

	// Restore is like Create, but the sandbox continues from the state in dir. A state may be
	// restored any number of times and under any ID. Limits for memory and CPU may differ from
	// those of the checkpoint. The root, the workspace, the path masks, and the limits for
	// processes and files must be the same. Earlier connections into the sandbox are closed, and
	// its guest reads spec.Boot again.
	Restore(ctx context.Context, spec Spec, dir string) error

	// Replace replaces the sandbox with the same ID by a restored one, or by a new one if dir is
	// "". The engine does everything that can fail before it stops the old sandbox, so that the old
	// one continues after most errors. After an error with the code "replace_failed", no sandbox
	// has that ID.
	Replace(ctx context.Context, spec Spec, dir string) error
}

// PartKind is how a part of a saved state is stored.
type PartKind string

// Kinds of parts.
const (
	// PartSmall is a file of at most 256 MiB. It is read and verified as a whole before each
	// restore.
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

// Binder is the ability to report which files of the host a saved state refers to.
type Binder interface {
	// CheckpointBound is like Checkpoint, and also returns the files below the binds of a HostView
	// that the state refers to: the files that programs have open or mapped, and directories. The
	// caller closes the result. If the engine cannot determine the files, known is false, and the
	// state is written all the same.
	CheckpointBound(ctx context.Context, id, dir string) (list Bound, known bool, err error)
}

// Bound lists the files that a saved state refers to, with an open descriptor of each, in the same
// order.
type Bound struct {
	Files []hostfiles.File
	Open  hostfiles.List
}

// Archiver is the ability to save only the files of a sandbox, in a form that does not depend on
// the engine.
type Archiver interface {
	// Archive writes to w a tar of all files that the sandbox has changed below its root. The
	// sandbox keeps running. A character device 0:0 stands for a deleted file of that name, as in
	// overlayfs. The workspace and masked paths are included only where the sandbox has written. If
	// w is a regular file, an engine may leave holes for zeros, and may pass the file to the
	// process that writes the tar.
	Archive(ctx context.Context, id string, w io.Writer) error

	// Extract writes the same tar from the state that Checkpoint has written to dir, for a sandbox
	// like spec. No sandbox remains afterwards. The programs of the state have no network during
	// the call.
	Extract(ctx context.Context, spec Spec, dir string, w io.Writer) error
}

// Bare returns the specification without the fields that belong to one sandbox only. Sandboxes of
// one kind have the remaining fields in common.
func (s Spec) Bare() Spec {
	s.ID, s.Hostname, s.Boot, s.Egress = "", "", Boot{}, Egress{}
	s.Events, s.EventBytes, s.Unhurried = nil, 0, false
	return s
}

// Prestarted requests a number of kernels that are ready for sandboxes like Spec. Only the fields
// of Spec that Bare keeps matter.
type Prestarted struct {
	Spec  Spec
	Count int
}

// Warmer is the ability to do the common part of Create, Restore and Replace in advance, for
// sandboxes of one kind.
type Warmer interface {
	// Pace sets a function that the engine calls before it starts a kernel in advance. The function
	// reports whether the engine may start one now, and returns a function to call when the kernel
	// is ready. Without Pace, the engine may always start one. Pace is called once, before Warm.
	Pace(acquire func() (done func(), ok bool))
	// Warm keeps these kernels ready and no others; an empty list drops all of them. It returns at
	// once: kernels are made one by one in the background, those of the first kind first.
	Warm(wanted []Prestarted)
}
