package api

import "time"

// OnEnd is the action when a sandbox's time is up. Without it the sandbox ends.
type OnEnd struct {
	Pause     bool `json:"pause,omitempty" doc:"Pause it, so that it can be resumed."`
	FilesOnly bool `json:"files_only,omitempty" doc:"Pause without memory: it boots anew when it is resumed. Needs pause."`
	Wake      bool `json:"wake,omitempty" doc:"Resume automatically on incoming traffic, also after a requested pause. Not with files_only."`
}

// Pause is the body of POST /v1/sandboxes/{id}/pause.
type Pause struct {
	FilesOnly bool `json:"files_only,omitempty" doc:"Save only files: it boots anew when it is resumed."`
}

// Resume is the body of POST /v1/sandboxes/{id}/resume.
type Resume struct {
	FilesOnly      bool    `json:"files_only,omitempty" doc:"Resume without memory and processes, even if they were saved: it boots anew with its files."`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" minimum:"0" doc:"Time until it ends by itself; its original time if absent. The end of a running sandbox is never moved to an earlier time."`
}

// Rollback is the body of POST /v1/sandboxes/{id}/rollback.
type Rollback struct {
	Snapshot string `json:"snapshot" minLength:"1" maxLength:"256" doc:"ID or name."`
}

// CreateFork is the body of POST /v1/sandboxes/{id}/fork.
type CreateFork struct {
	Count          int     `json:"count,omitempty" minimum:"1" maximum:"100" doc:"Number of copies; one if absent."`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" minimum:"0" doc:"Time until each copy ends by itself; the server's default if absent."`
	Forever        bool    `json:"forever,omitempty" doc:"The copies do not end by themselves. Local callers only."`
	Ephemeral      bool    `json:"ephemeral,omitempty" doc:"The copies end with the server's process. Local callers only."`
	FilesOnly      bool    `json:"files_only,omitempty" doc:"Copy only files, without memory and processes: each copy boots anew."`
}

// Fork is one copy, or the error of its creation.
type Fork struct {
	Sandbox *Sandbox `json:"sandbox,omitempty"`
	Error   *Problem `json:"error,omitempty"`
}

// ForkList is the answer of POST /v1/sandboxes/{id}/fork, with one element for each requested copy.
type ForkList struct {
	Forks []Fork `json:"forks"`
}

// CreateSnapshot is the body of POST /v1/sandboxes/{id}/snapshots.
type CreateSnapshot struct {
	Name      string `json:"name,omitempty" maxLength:"256" doc:"Name. If several snapshots have it, it means the newest."`
	FilesOnly bool   `json:"files_only,omitempty" doc:"Save only files, without memory and processes."`
}

// Snapshot is the state of a sandbox at one time. Its ID or name can be used as a template for new
// sandboxes.
type Snapshot struct {
	ID         string     `json:"id"`
	Name       string     `json:"name,omitempty"`
	Engine     string     `json:"engine" doc:"Engine that created it. Its memory can be restored only there."`
	Owner      string     `json:"owner,omitempty" doc:"ID of the API key that created it; absent for a local caller."`
	Sandbox    string     `json:"sandbox" doc:"Sandbox that it was taken of."`
	Parent     string     `json:"parent,omitempty" doc:"The snapshot that the sandbox came from; absent is its template."`
	Template   string     `json:"template"`
	TemplateID string     `json:"template_id"`
	FilesOnly  bool       `json:"files_only" doc:"Without memory and processes."`
	CreatedAt  time.Time  `json:"created_at"`
	Bytes      int64      `json:"size_bytes" doc:"Size of the snapshot."`
	OwnBytes   int64      `json:"own_bytes" doc:"Disk space that removing it would free."`
	Format     string     `json:"format,omitempty" doc:"Format of the memory state; absent for files only, which every version can use."`
	HostFiles  *HostFiles `json:"host_files,omitempty" doc:"Host files that its memory refers to; absent for files only, or if the engine does not report them."`
}

// SnapshotList is the answer of GET /v1/snapshots.
type SnapshotList struct {
	Snapshots  []Snapshot `json:"snapshots" doc:"The newest first."`
	NextCursor string     `json:"next_cursor,omitempty" doc:"Cursor for the next page; absent on the last page."`
}
