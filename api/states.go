package api

import "time"

// OnEnd sets what happens to a sandbox when its time is up. Without it the
// sandbox ends.
type OnEnd struct {
	Pause     bool `json:"pause,omitempty" doc:"Write it down and end its processes, so that it can be resumed."`
	FilesOnly bool `json:"files_only,omitempty" doc:"Pause without memory: it boots anew when it is resumed. Needs pause."`
	Wake      bool `json:"wake,omitempty" doc:"Traffic to the sandbox resumes it, also after a pause that a caller asked for. Not with files_only."`
}

// Pause is the body of POST /v1/sandboxes/{id}/pause.
type Pause struct {
	FilesOnly bool `json:"files_only,omitempty" doc:"Keep files and not memory: it boots anew when it is resumed."`
}

// Resume is the body of POST /v1/sandboxes/{id}/resume.
type Resume struct {
	FilesOnly      bool    `json:"files_only,omitempty" doc:"Leave memory and processes out, also if they were kept: it boots anew with its files."`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" minimum:"0" doc:"Until it ends by itself; the time that it was made with if absent. The end of one that runs is not made earlier."`
}

// Rollback is the body of POST /v1/sandboxes/{id}/rollback.
type Rollback struct {
	Snapshot string `json:"snapshot" minLength:"1" maxLength:"256" doc:"ID or name."`
}

// CreateFork is the body of POST /v1/sandboxes/{id}/fork.
type CreateFork struct {
	Count          int     `json:"count,omitempty" minimum:"1" maximum:"100" doc:"How many copies; one if absent."`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" minimum:"0" doc:"Until each copy ends by itself; the server's default if absent."`
	Forever        bool    `json:"forever,omitempty" doc:"The copies do not end by themselves. Local callers only."`
	Ephemeral      bool    `json:"ephemeral,omitempty" doc:"The copies end with the server's process. Local callers only."`
}

// Fork is one copy, or why there is none. One of both is there.
type Fork struct {
	Sandbox *Sandbox `json:"sandbox,omitempty"`
	Error   *Problem `json:"error,omitempty"`
}

// ForkList is the answer of POST /v1/sandboxes/{id}/fork, with as many
// elements as copies were asked for.
type ForkList struct {
	Forks []Fork `json:"forks"`
}

// CreateSnapshot is the body of POST /v1/sandboxes/{id}/snapshots.
type CreateSnapshot struct {
	Name      string `json:"name,omitempty" maxLength:"256" doc:"The newest snapshot of a name has it."`
	FilesOnly bool   `json:"files_only,omitempty" doc:"Leave memory and processes out."`
}

// Snapshot is the state of a sandbox at one time. Its ID or name is a
// template for new sandboxes.
type Snapshot struct {
	ID         string     `json:"id"`
	Name       string     `json:"name,omitempty"`
	Engine     string     `json:"engine" doc:"The engine that made it. Its memory is restored only there."`
	Owner      string     `json:"owner,omitempty" doc:"ID of the key that made it; absent for a local one."`
	Sandbox    string     `json:"sandbox" doc:"Of which it was taken."`
	Parent     string     `json:"parent,omitempty" doc:"The snapshot that the sandbox came from; absent is its template."`
	Template   string     `json:"template"`
	TemplateID string     `json:"template_id"`
	FilesOnly  bool       `json:"files_only" doc:"Without memory and processes."`
	CreatedAt  time.Time  `json:"created_at"`
	Bytes      int64      `json:"size_bytes" doc:"What was written down."`
	OwnBytes   int64      `json:"own_bytes" doc:"What the disk would have free without it."`
	Format     string     `json:"format,omitempty" doc:"What can go on from it; absent for files only, from which anything can."`
	HostFiles  *HostFiles `json:"host_files,omitempty" doc:"What its memory refers to of the host; absent for files only, or if the engine cannot tell."`
}

// SnapshotList is the answer of GET /v1/snapshots.
type SnapshotList struct {
	Snapshots  []Snapshot `json:"snapshots" doc:"The newest first."`
	NextCursor string     `json:"next_cursor,omitempty" doc:"Hand it back as cursor for the next page; absent on the last."`
}
