package api

import (
	"encoding/json"
	"time"
)

// Change is one path that is not as it was.
type Change struct {
	Path string `json:"path" doc:"Below the directory that is compared, without a leading slash."`
	Op   string `json:"op" enum:"created,changed,removed"`
	Type string `json:"type" enum:"file,dir,link,other" doc:"What it is now, or was if it is removed."`
	Mode string `json:"mode,omitempty" doc:"Permission bits now, octal."`
	Size int64  `json:"size"`
	Sum  string `json:"sum,omitempty" doc:"SHA-256 of the content now, in hexadecimal; of a link that of its target. Absent of what will be masked when it comes out."`
	// Target is where a link points.
	Target  string `json:"target,omitempty"`
	Binary  bool   `json:"binary,omitempty"`
	Added   int    `json:"added" doc:"Lines."`
	Removed int    `json:"removed" doc:"Lines."`
	Text    string `json:"text,omitempty" doc:"Unified diff, where it was asked for and the content is text."`
	// Flags say why somebody should look at it before it comes out.
	Flags []string `json:"flags,omitempty" doc:"protected, runs_by_itself, link_out, setuid, special, conflict, too_large, secret_name, masked: it holds a sealed secret, and comes out with stars in its place, hidden_changed: commits that it names delete or change a file that the policy hides, git_unchecked: it cannot be found out whether they do."`
	// Because names the file for which a reference of git has a flag.
	Because string `json:"because,omitempty" doc:"Of a reference of git: the file in its commits for which it has a flag."`
	// Conflict names what was changed outside since the sandbox started.
	Conflict string `json:"conflict,omitempty" enum:",changed_outside,removed_outside,created_outside,secret_outside"`
}

// Changes is the answer of GET /v1/sandboxes/{id}/changes.
type Changes struct {
	Sandbox string    `json:"sandbox"`
	Since   string    `json:"since" doc:"start, or the ID of a snapshot."`
	Dir     string    `json:"dir" doc:"The directory inside that was compared."`
	TakenAt time.Time `json:"taken_at"`
	Files   int       `json:"files"`
	Added   int       `json:"added" doc:"Lines in all."`
	Removed int       `json:"removed" doc:"Lines in all."`
	Changes []Change  `json:"changes" doc:"By path."`
	// Digest names exactly these changes: what is applied or approved is that.
	Digest    string `json:"digest"`
	Truncated bool   `json:"truncated,omitempty" doc:"There are more than the bound."`
	// Retained is set where the sandbox has ended and its changes were retained.
	Retained bool `json:"retained,omitempty" doc:"The sandbox has ended; these are the changes that were retained of it."`
	// Kept is the earlier name of Retained. Both are set.
	Kept bool `json:"kept,omitempty" deprecated:"true" doc:"The earlier name of retained."`
}

// RetainedChanges are the changes of a sandbox that has ended.
type RetainedChanges struct {
	ID        string    `json:"id" doc:"Of the sandbox that has ended."`
	Workspace string    `json:"workspace,omitempty" doc:"The host directory that it showed."`
	TakenAt   time.Time `json:"taken_at"`
	ExpiresAt time.Time `json:"expires_at" doc:"They are dropped then."`
	Files     int       `json:"files" doc:"How many paths are not as they were; 0 if nothing was retained."`
	Added     int       `json:"added" doc:"Lines."`
	Removed   int       `json:"removed" doc:"Lines."`
}

// RetainedList is the answer of GET /v1/changes.
type RetainedList struct {
	Changes []RetainedChanges `json:"changes" doc:"Newest first."`
}

// Apply is the body of POST /v1/sandboxes/{id}/apply.
type Apply struct {
	Paths []string `json:"paths,omitempty" maxItems:"10000" doc:"Only these, and what lies below them; all if absent. Patterns may be used."`
	// Digest, if given, must be that of the changes as they are now.
	Digest string `json:"digest,omitempty" maxLength:"128"`
	// Protected lets flagged files out too; each is named in the answer.
	Protected bool `json:"protected,omitempty" doc:"Also files that are protected or run by themselves."`
	// Overwrite takes the box's file where both sides changed it.
	Overwrite bool `json:"overwrite,omitempty" doc:"Also where the file was changed outside since the sandbox started."`
	DryRun    bool `json:"dry_run,omitempty"`
	// Provenance asks for a signed statement about the files.
	Provenance bool `json:"provenance,omitempty" doc:"Sign for what comes; see docs/reference/provenance.md."`
}

// Applied is the answer of POST /v1/sandboxes/{id}/apply.
type Applied struct {
	Applied  []Change `json:"applied"`
	Skipped  []Change `json:"skipped,omitempty" doc:"With the flags for which they were left out."`
	Digest   string   `json:"digest"`
	Approval string   `json:"approval,omitempty" doc:"ID of the approval that was spent."`
	DryRun   bool     `json:"dry_run,omitempty"`
	// Effect is what the policy says of exactly these changes.
	Effect string `json:"effect,omitempty" enum:",allow,ask,deny" doc:"What the policy says of these changes."`
	Rule   string `json:"rule,omitempty" doc:"Which rule that is."`
	// Provenance is the DSSE envelope that was asked for.
	Provenance json.RawMessage `json:"provenance,omitempty" doc:"The DSSE envelope that was asked for."`
}
