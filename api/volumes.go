package api

import "time"

// Volume is a named directory that outlives sandboxes.
type Volume struct {
	ID        string       `json:"id"`
	Name      string       `json:"name"`
	Owner     string       `json:"owner,omitempty" doc:"ID of the API key that created it; absent for a local caller."`
	Quota     string       `json:"quota" enum:"enforced,none" doc:"enforced: no program can exceed size_bytes and files. none: only the host's disk limits it."`
	Bytes     int64        `json:"size_bytes,omitempty" doc:"Disk space that is reserved for it; absent without a quota."`
	Files     int64        `json:"files,omitempty" doc:"Files and directories that it can hold; absent without a quota."`
	CreatedAt time.Time    `json:"created_at"`
	From      string       `json:"from,omitempty" doc:"Volume of which it is a snapshot."`
	Sandboxes []string     `json:"sandboxes,omitempty" doc:"Sandboxes that have it, also paused ones."`
	Usage     *VolumeUsage `json:"usage,omitempty" doc:"Absent in lists."`
}

// VolumeUsage is the space that a volume uses.
type VolumeUsage struct {
	UsedBytes  int64 `json:"used_bytes"`
	UsedFiles  int64 `json:"used_files"`
	TotalBytes int64 `json:"total_bytes,omitempty" doc:"Size of its file system, which is a little less than size_bytes; absent without a quota."`
}

// VolumeList is the answer of GET /v1/volumes.
type VolumeList struct {
	Volumes []Volume `json:"volumes"`
}

// CreateVolume is the body of POST /v1/volumes.
type CreateVolume struct {
	Name      string `json:"name" maxLength:"63" doc:"Unique among the volumes of the caller."`
	Bytes     int64  `json:"size_bytes,omitempty" minimum:"0" doc:"Quota, at least 16 MiB; 1 GiB if absent."`
	Files     int64  `json:"files,omitempty" minimum:"0" doc:"Quota of files and directories; one for each 16 KiB if absent."`
	Unlimited bool   `json:"unlimited,omitempty" doc:"Without a quota. Local callers only."`
}

// SnapshotVolume is the body of POST /v1/volumes/{volume}/snapshot.
type SnapshotVolume struct {
	Name string `json:"name" maxLength:"63" doc:"Name of the new volume."`
}

// VolumeMount is a volume that is visible in a sandbox.
type VolumeMount struct {
	Name     string `json:"name" maxLength:"63" doc:"Name or ID of the volume."`
	Target   string `json:"target" maxLength:"1024" doc:"Absolute path inside."`
	ReadOnly bool   `json:"read_only,omitempty"`
}
