// Package changes owns the comparison of a sandbox's files with an earlier state, and the export of
// the changes. Changes are written into the host's directory or a file, with a signed statement if
// requested, or are retained beyond the sandbox's end.
package changes

import (
	"context"
	"io"
	"log/slog"
	"net/http"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/retained"
	"github.com/crannog/crannog/internal/state/workspace"
)

// Source finds sandboxes and opens their files for reading.
type Source interface {
	// Resolve returns the row of the sandbox that a caller names, if the caller may see it.
	Resolve(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Row, error)
	// Snapshot returns the snapshot that a caller names, if the caller may use it.
	Snapshot(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Stored, error)
	// Policy compiles the policy that is in force under an access.
	Policy(a sandbox.Access) (*policy.Policy, error)
	// HostBinds returns the host files that are mounted in a sandbox's instance.
	HostBinds(ctx context.Context, r sandbox.Row, p *policy.Policy) ([]engine.Bind, error)
	// Open makes the files of a sandbox readable. For a paused sandbox it starts a temporary copy.
	Open(ctx context.Context, r sandbox.Row) (Opened, error)
	// OpenSnapshot makes the files of a snapshot readable in a temporary copy.
	OpenSnapshot(ctx context.Context, r sandbox.Row, n sandbox.Stored) (Opened, error)
	// Guest sends a request to the guest of an opened sandbox.
	Guest(ctx context.Context, r sandbox.Row, method, path string, body io.Reader) (*http.Response, error)
	// RetainedRedactor returns the redactor for names in an ended sandbox's changes.
	RetainedRedactor(ctx context.Context, r sandbox.Row) (*sandbox.Redactor, error)
	// Unchanged reports whether the instance certainly changed no file of the workspace. In doubt
	// it returns false.
	Unchanged(ctx context.Context, r sandbox.Row) bool
	// Log adds to the sandbox's own log.
	Log(ctx context.Context, id, message string)
	// Forget removes the initial state with which an ended sandbox's retained changes were
	// compared, unless it is still needed.
	Forget(id, copied string) error
	// DropRecording removes the recordings of an ended sandbox.
	DropRecording(ctx context.Context, id string) error
}

// Opened is a sandbox whose files can be read through its guest.
type Opened struct {
	Row   sandbox.Row
	Mask  *sandbox.Redactor // redacts what comes out; nil redacts nothing
	Close func() error      // nil if there is nothing to close
}

// Audit writes the audit entries about exported changes.
type Audit interface {
	// Begin starts the entry of a caller's request.
	Begin(ctx context.Context, caller sandbox.Principal, do, ref string) (context.Context, Action)
	// Append writes entries durably. It is called before an action that must not happen without
	// them.
	Append(ctx context.Context, drafts ...audit.Draft) error
	// Note writes entries without waiting for the disk.
	Note(drafts ...audit.Draft) error
	// Checkpoint returns a signed tree head that covers all entries so far.
	Checkpoint(ctx context.Context) (audit.Checkpoint, error)
}

// Action is the audit entry of one request.
type Action interface {
	// Commit writes the outcome, and returns an error if it cannot be written.
	Commit(ctx context.Context, err error) error
	// Finish writes the outcome of an action that is not undone if it cannot be written.
	Finish(ctx context.Context, err error) error
}

// Deps is what a Service needs. Source, Audit and Log are required.
type Deps struct {
	Source Source
	Audit  Audit
	Log    *slog.Logger
	// Approvals decides where a policy requires approval. Without it such requests are denied.
	Approvals sandbox.ApprovalRequests
	// Manifests stores the initial states of workspaces, Copies the copies of workspaces, and
	// Retained the changes of ended sandboxes. Journals is a directory for applies in progress.
	// Without them nothing is compared, retained or applied.
	Manifests *workspace.Manifests
	Copies    *workspace.Copies
	Retained  *retained.Store
	Journals  string
	// Provenance signs statements about exports, in which Version is this program's version.
	// Without it nothing is signed.
	Provenance *provenance.Keys
	Version    string
}

// Service compares and exports what sandboxes changed. It is safe for concurrent use.
type Service struct {
	source      Source
	audit       Audit
	log         *slog.Logger
	approvals   sandbox.ApprovalRequests
	manifests   *workspace.Manifests
	copies      *workspace.Copies
	retained    *retained.Store
	journals    string
	signing     *provenance.Keys
	version     string
	comparisons slots
}

// New makes a Service.
func New(d Deps) *Service {
	return &Service{
		source: d.Source, audit: d.Audit, log: d.Log, approvals: d.Approvals,
		manifests: d.Manifests, copies: d.Copies, retained: d.Retained, journals: d.Journals,
		signing: d.Provenance, version: d.Version, comparisons: make(slots, maxComparisons),
	}
}
