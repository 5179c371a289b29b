package sandbox

import (
	"context"
	"io"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/filetree/changeset"
)

// ChangesRequest says which changes are meant. The zero value is all of the
// workspace since the sandbox's start.
type ChangesRequest struct {
	Since string // "start" or a snapshot, by ID or name; "" is "start"
	Dir   string // inside; "" is /workspace
	Paths []string
	Text  bool
}

// ChangeSet is what is not as it was.
type ChangeSet struct {
	Sandbox string
	Since   string
	Dir     string
	TakenAt time.Time
	Changes []changeset.Change
	Digest  string
	// Truncated says that there are more than fit in one answer. The digest
	// is over all of them.
	Truncated bool
	// Kept says that the sandbox has ended.
	Kept           bool
	Files          int
	Added, Removed int
}

// ApplyRequest selects the changes to write into the workspace's host directory.
type ApplyRequest struct {
	Paths     []string
	Digest    string // "" is whatever there is
	Protected bool
	Overwrite bool
	DryRun    bool
	// Provenance asks for a signed statement about the files.
	Provenance bool
}

// Applied is what came of it.
type Applied struct {
	Applied, Skipped []changeset.Change
	Digest           string
	Approval         string
	DryRun           bool
	Decision         egress.Decision
	// Provenance is the envelope that was asked for.
	Provenance []byte
}

// ExportRequest selects the changes to export, and their format.
type ExportRequest struct {
	ChangesRequest
	Format    string // tar or patch
	Protected bool
	Digest    string
	// Provenance asks for a signed statement about the file.
	Provenance bool
}

// Exported is a file of known size, which Close removes.
type Exported struct {
	io.ReadCloser
	Size   int64
	Digest string
	Files  int
	// Masked is in how many of them values of secrets were masked.
	Masked int
	// Provenance is the envelope that was asked for.
	Provenance []byte

	SHA256 string // SHA-256, hexadecimal
}

// KeptChanges are what an ended sandbox left to decide about.
type KeptChanges struct {
	ID                 string
	Workspace          string
	TakenAt, ExpiresAt time.Time
	Files              int
	Added, Removed     int
}

// Changing is what surfaces use of what boxes have changed, and the only way
// on which it comes out. A reference also means, by its ID, an ended sandbox
// whose changes were kept.
type Changing interface {
	// Changes compares; nothing comes out by it but to the caller's eyes. Texts
	// that they get to see are on record.
	Changes(ctx context.Context, who Principal, ref string, req ChangesRequest) (ChangeSet, error)
	// Apply brings changes into the host directory that the sandbox shows, all
	// or none of those that may come. Only local callers may. Where the policy
	// asks, it is Denied with the code "export_pending" until people have
	// approved these very changes.
	Apply(ctx context.Context, who Principal, ref string, req ApplyRequest) (Applied, error)
	// Export writes changes to a file for the caller, under the same rules.
	Export(ctx context.Context, who Principal, ref string, req ExportRequest) (*Exported, error)
	// KeepChanges keeps what is changed below the workspace beyond the
	// sandbox's end; with Files zero nothing was. Only local callers may.
	KeepChanges(ctx context.Context, who Principal, ref string) (KeptChanges, error)
	// ListChanges returns what was kept, newest first.
	ListChanges(ctx context.Context, who Principal) ([]KeptChanges, error)
	// DiscardChanges drops what was kept of a sandbox.
	DiscardChanges(ctx context.Context, who Principal, id string) error
}
