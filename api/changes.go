package api

import (
	"encoding/json"
	"time"
)

// Change is one changed path.
type Change struct {
	Path string `json:"path" doc:"Path below the compared directory, without a leading slash."`
	Op   string `json:"op" enum:"created,changed,removed"`
	Type string `json:"type" enum:"file,dir,link,other" doc:"Type now, or before its removal."`
	Mode string `json:"mode,omitempty" doc:"Permission bits now, in octal."`
	Size int64  `json:"size"`
	Sum  string `json:"sum,omitempty" doc:"SHA-256 of the content now, in hexadecimal; for a link, of its target. Absent if the export redacts the file."`
	// Target is where a link points.
	Target  string `json:"target,omitempty"`
	Binary  bool   `json:"binary,omitempty"`
	Added   int    `json:"added" doc:"Lines."`
	Removed int    `json:"removed" doc:"Lines."`
	Text    string `json:"text,omitempty" doc:"Unified diff, if requested and if the content is text."`
	// Flags are reasons to check the change before it is applied or exported.
	Flags []string `json:"flags,omitempty" doc:"protected, runs_by_itself, link_out, setuid, special, conflict, too_large, secret_name, masked: it contains a secret, which the export replaces with asterisks; hidden_changed: its commits delete or change a file that the policy hides; git_unchecked: its commits could not be checked."`
	// Because names the file that is the reason for the flag of a git reference.
	Because string `json:"because,omitempty" doc:"For a git reference: the file in its commits that caused the flag."`
	// Conflict describes a change of the same path on the host since the sandbox started.
	Conflict string `json:"conflict,omitempty" enum:",changed_outside,removed_outside,created_outside,secret_outside"`
}

// Changes is the answer of GET /v1/sandboxes/{id}/changes.
type Changes struct {
	Sandbox string    `json:"sandbox"`
	Since   string    `json:"since" doc:"start, or the ID of a snapshot."`
	Dir     string    `json:"dir" doc:"Compared directory inside."`
	TakenAt time.Time `json:"taken_at"`
	Files   int       `json:"files"`
	Added   int       `json:"added" doc:"Lines in all."`
	Removed int       `json:"removed" doc:"Lines in all."`
	Changes []Change  `json:"changes" doc:"By path."`
	// Digest is the digest of exactly these changes, to which an approval or apply is bound.
	Digest    string `json:"digest"`
	Truncated bool   `json:"truncated,omitempty" doc:"The list is incomplete."`
	// Retained is set if the sandbox has ended and its changes were retained.
	Retained bool `json:"retained,omitempty" doc:"The sandbox has ended; these are its retained changes."`
	// Kept is the earlier name of Retained. Both are set.
	Kept bool `json:"kept,omitempty" deprecated:"true" doc:"The earlier name of retained."`
}

// RetainedChanges are the changes of a sandbox that has ended.
type RetainedChanges struct {
	ID        string    `json:"id" doc:"Of the sandbox that has ended."`
	Workspace string    `json:"workspace,omitempty" doc:"Host directory of its workspace."`
	TakenAt   time.Time `json:"taken_at"`
	ExpiresAt time.Time `json:"expires_at" doc:"Time at which they are deleted."`
	Files     int       `json:"files" doc:"Number of changed paths; 0 if nothing was retained."`
	Added     int       `json:"added" doc:"Lines."`
	Removed   int       `json:"removed" doc:"Lines."`
}

// RetainedList is the answer of GET /v1/changes.
type RetainedList struct {
	Changes []RetainedChanges `json:"changes" doc:"Newest first."`
}

// Apply is the body of POST /v1/sandboxes/{id}/apply.
type Apply struct {
	Paths []string `json:"paths,omitempty" maxItems:"10000" doc:"Paths to apply, including everything below them; all if absent. Globs may be used."`
	// Digest, if given, must be that of the present changes.
	Digest string `json:"digest,omitempty" maxLength:"128"`
	// Protected includes flagged files; each is named in the answer.
	Protected bool `json:"protected,omitempty" doc:"Include protected files and files that tools run by themselves."`
	// Overwrite replaces files that were changed on both sides.
	Overwrite bool `json:"overwrite,omitempty" doc:"Also overwrite files that were changed on the host since the sandbox started."`
	DryRun    bool `json:"dry_run,omitempty"`
	// Provenance requests a signed statement about the files.
	Provenance bool `json:"provenance,omitempty" doc:"Sign a statement about the applied files; see docs/reference/provenance.md."`
}

// Applied is the answer of POST /v1/sandboxes/{id}/apply.
type Applied struct {
	Applied  []Change `json:"applied"`
	Skipped  []Change `json:"skipped,omitempty" doc:"Changes that were not applied, with the flags that prevented it."`
	Digest   string   `json:"digest"`
	Approval string   `json:"approval,omitempty" doc:"ID of the approval that was used."`
	DryRun   bool     `json:"dry_run,omitempty"`
	// Effect is the policy's decision about exactly these changes.
	Effect string `json:"effect,omitempty" enum:",allow,ask,deny" doc:"Decision of the policy about these changes."`
	Rule   string `json:"rule,omitempty" doc:"Rule that decided."`
	// Provenance is the requested DSSE envelope.
	Provenance json.RawMessage `json:"provenance,omitempty" doc:"The requested DSSE envelope."`
}
