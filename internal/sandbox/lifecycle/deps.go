package lifecycle

import (
	"log/slog"

	"github.com/crannog/crannog/internal/audit/flows"
	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/host/diskroom"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/admission"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/state/retained"
	"github.com/crannog/crannog/internal/state/workspace"
)

// Deps is what a Service is made of. Store, Engines, Templates, Audit and Log
// are required.
type Deps struct {
	Store sandbox.Store
	// Engines are those that sandboxes can run on. The rows of others are listed and
	// left as they are.
	Engines   *engine.Registry
	Templates sandbox.Templates
	Log       *slog.Logger
	Settings  sandbox.Settings
	// Gateway gives sandboxes a network, Sealed the secrets that they use there,
	// and Flows holds the records. Without them every sandbox that asks for a
	// network is refused.
	Gateway sandbox.Gateway
	Sealed  sandbox.Sealed
	// Questions are ended with the policy or the sandbox that asked them.
	Questions sandbox.Questions
	Flows     *flows.Dir
	// Copies holds copies of workspaces, for policies that want one. Without
	// it they are refused.
	Copies *workspace.Copies
	// Images holds what is saved of sandboxes. Without it no state is saved.
	Images sandbox.Images
	// HostFiles keeps copies of the host files to which saved memory refers.
	// Without it, saved memory can be restored only as long as the host has them.
	HostFiles sandbox.HostFiles
	// Audit takes entries of what happens. What it refuses does not happen, except that
	// sandboxes can always be paused and ended.
	Audit *auditlog.Log
	// Events is a directory for what engines see in sandboxes, on its way into
	// the record, with what Flows holds. "" takes in neither.
	Events string
	// Recordings are of what commands printed. They go with the sandbox's
	// record. Without it nothing is dropped.
	Recordings sandbox.Recordings
	// Manifests note what workspaces were, Kept holds what ended sandboxes have
	// changed, and Journals is a directory for what is being applied. Without
	// them nothing is compared, kept or applied.
	Manifests *workspace.Manifests
	Kept      *retained.Store
	Journals  string
	// Provenance signs for what comes out, and Version is what it then says of
	// this program. Without it nothing is signed for.
	Provenance *provenance.Keys
	Version    string
	// Admission decides when a sandbox may be started; nil makes a queue for this
	// Service alone.
	Admission *admission.Queue
	// Room is what the disk has for new sandboxes; the zero value has no bounds.
	Room diskroom.Room
	// Process is the process that holds what the Service creates; zero is this one.
	// Alive reports whether another process still runs; nil asks the kernel.
	Process sandbox.Process
	Alive   func(sandbox.Process) bool
}
