package sandbox

// Mount is a file or directory of the host's that a sandbox shows beside its
// workspace. What is written there stays in the sandbox.
type Mount struct {
	// Name is that of a directory which the server's settings share, in place of Source
	// in a request.
	Name     string `json:"name,omitempty"`
	Source   string `json:"source"`              // absolute, on the host
	Target   string `json:"target"`              // absolute, inside; in a request "" is Source
	ReadOnly bool   `json:"read_only,omitempty"` // it cannot be written inside either
}

// MaxMounts is how many mounts a sandbox may have.
const MaxMounts = 16

// WorkspaceDir is where a workspace is shown inside.
const WorkspaceDir = "/workspace"
