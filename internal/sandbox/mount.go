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
