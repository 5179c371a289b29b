package policy

// Files is what a policy says about the sandbox's file tree: what is mounted
// and how, and what is looked at when files leave.
type Files struct {
	Workspace string // copy, overlay or bind
	Writable  bool   // whether the workspace may be written
	ReadOnly  []string
	Write     []string
	Deny      []string // globs
	Protect   []string // globs
	Export    Export
}

// Files is the policy's file part.
func (p *Policy) Files() Files { return p.files }
