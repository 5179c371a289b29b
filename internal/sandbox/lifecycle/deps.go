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
	"github.com/crannog/crannog/internal/telemetry/metrics"
)

// Deps is what a Service needs. Store, Engines, Templates, Audit and Log are required.
type Deps struct {
	Store sandbox.Store
	// Engines are the engines that sandboxes can run on. Rows of other engines are listed and
	// otherwise left alone.
	Engines   *engine.Registry
	Templates sandbox.Templates
	Log       *slog.Logger
	Settings  sandbox.Settings
	// Gateway connects sandboxes to networks, Sealed stores the secrets that they use there, and
	// Flows stores the flow files. Without them, sandboxes that request a network are refused.
	Gateway sandbox.Gateway
	Sealed  sandbox.Sealed
	// Approvals stores approval requests, which are closed with the policy or the sandbox that made
	// them.
	Approvals sandbox.ApprovalRequests
	Flows     *flows.Dir
	// Volumes attaches volumes. Without it, sandboxes that request a volume are refused.
	Volumes sandbox.Volumes
	// Copies holds copies of workspaces, for policies that require one. Without it such policies
	// are refused.
	Copies *workspace.Copies
	// Images stores saved states of sandboxes. Without it no state is saved.
	Images sandbox.Images
	// HostFiles keeps copies of the host files to which saved memory refers. Without it,
	// saved memory can be restored only as long as the host has them.
	HostFiles sandbox.HostFiles
	// Audit receives audit entries. If it refuses an entry, the action does not happen. Pausing and
	// ending sandboxes are exceptions and always possible.
	Audit *auditlog.Log
	// Events is the directory for events that engines observe, until these and the ones in Flows
	// are in the audit log. If it is "", neither is ingested.
	Events string
	// Recordings contains the output of commands. It is removed with the sandbox's row. Without it
	// nothing is removed.
	Recordings sandbox.Recordings
	// Manifests stores the initial states of workspaces, Retained the changes of ended sandboxes,
	// and Journals is a directory for applies in progress. Without them nothing is compared,
	// retained or applied.
	Manifests *workspace.Manifests
	Retained  *retained.Store
	Journals  string
	// Provenance signs statements about exports, in which Version is this program's version.
	// Without it nothing is signed.
	Provenance *provenance.Keys
	Version    string
	// Admission decides when a sandbox may be started; nil creates a queue for this Service alone.
	Admission *admission.Queue
	// Room checks the disk for new sandboxes; the zero value has no limits.
	Room diskroom.Check
	// StartTimes measures starts, with the labels engine and source. It may be nil.
	StartTimes *metrics.Vector
	// Process is the process to which the Service's ephemeral sandboxes belong; zero is this one.
	// Alive reports whether another process still runs; nil asks the kernel.
	Process sandbox.Process
	Alive   func(sandbox.Process) bool
}
