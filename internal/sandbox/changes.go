package sandbox

import (
	"io"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/filetree/changeset"
)

// ChangesRequest selects the files to compare. The zero value selects the whole workspace since the
// sandbox's start.
type ChangesRequest struct {
	Since string // "start" or a snapshot, by ID or name; "" is "start"
	Dir   string // inside; "" is /workspace
	Paths []string
	Text  bool
}

// ChangeSet is the set of files that differ.
type ChangeSet struct {
	Sandbox string
	Since   string
	Dir     string
	TakenAt time.Time
	Changes []changeset.Change
	Digest  string
	// Truncated is set if not all changes fit into the answer. The digest covers all of them.
	Truncated bool
	// Retained is set if the sandbox has ended.
	Retained       bool
	Files          int
	Added, Removed int
}

// ApplyRequest selects the changes to write into the workspace's host directory.
type ApplyRequest struct {
	Paths     []string
	Digest    string // "" accepts any change set
	Protected bool
	Overwrite bool
	DryRun    bool
	// Provenance requests a signed statement about the files.
	Provenance bool
}

// Applied is the result of an apply.
type Applied struct {
	Applied, Skipped []changeset.Change
	Digest           string
	Approval         string
	DryRun           bool
	Decision         egress.Decision
	// Provenance is the signed statement, if requested.
	Provenance []byte
}

// ExportRequest selects the changes to export, and their format.
type ExportRequest struct {
	ChangesRequest
	Format    string // tar or patch
	Protected bool
	Digest    string
	// Provenance requests a signed statement about the file.
	Provenance bool
}

// Exported is a file of known size. Close removes it.
type Exported struct {
	io.ReadCloser
	Size   int64
	Digest string
	Files  int
	// Masked is the number of files in which secrets were redacted.
	Masked int
	// Provenance is the signed statement, if requested.
	Provenance []byte

	SHA256 string // SHA-256, hexadecimal
}

// KeptChanges are the retained changes of an ended sandbox.
type KeptChanges struct {
	ID                 string
	Workspace          string
	TakenAt, ExpiresAt time.Time
	Files              int
	Added, Removed     int
}
