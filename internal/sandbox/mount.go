package sandbox

// Mount is a file or directory of the host that a sandbox shows beside its workspace. Writes to it
// stay in the sandbox.
type Mount struct {
	// Name is the name of a directory that the server's settings share. A request gives it instead
	// of Source.
	Name     string `json:"name,omitempty"`
	Source   string `json:"source"`              // absolute, on the host
	Target   string `json:"target"`              // absolute, inside; in a request "" stands for Source
	ReadOnly bool   `json:"read_only,omitempty"` // it is read-only inside
}

// MaxMounts is how many mounts a sandbox may have.
const MaxMounts = 16

// WorkspaceDir is the path of a workspace inside.
const WorkspaceDir = "/workspace"

// VolumeMount is a volume that a sandbox shows. Writes to it stay after the sandbox.
type VolumeMount struct {
	ID       string `json:"id"` // "" in a request
	Name     string `json:"name"`
	Target   string `json:"target"` // absolute, inside
	ReadOnly bool   `json:"read_only,omitempty"`
	// OrShared also accepts the name of a directory that the server's settings share. It is set in
	// requests only.
	OrShared bool `json:"-"`
}

// Volumes finds and attaches volumes.
type Volumes interface {
	// Resolve returns the ID of a volume that a caller may use, by its name or ID. The error is
	// NotFound if there is none.
	Resolve(who Principal, name string) (id string, err error)
	// Attach makes the files of a volume accessible, and returns their directory on the host. The
	// error is NotFound if the volume was removed.
	Attach(id string) (dir string, err error)
}
