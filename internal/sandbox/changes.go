package sandbox

import (
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
