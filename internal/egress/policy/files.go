package policy

import (
	"slices"
	"strings"
)

// Files is the file part of a policy: what is mounted and how.
type Files struct {
	Workspace string // copy, overlay or bind
	Writable  bool   // whether the workspace may be written
	Read      []string
	Write     []string
	Deny      []string // globs
	Protect   []string // globs
	ReadOnly  []string // globs
	// Tracked is what happens to a sandbox if git tracks some of its hidden files.
	Tracked string
	// Tools reports whether programs of version managers in the home directory may be mounted.
	Tools bool
}

// Containers reports whether container engines may run in a sandbox whose request asks for them. A
// policy without the setting does not allow it.
func (p *Policy) Containers() bool { return p.merged.Isolation.Containers == containersAllow }

// Files returns the policy's file part.
func (p *Policy) Files() Files {
	f := p.merged.Filesystem
	out := Files{Workspace: f.Workspace.Mode, Read: f.Read, Write: f.Write, Deny: f.Deny, Protect: f.Protect, ReadOnly: f.ReadOnly, Tracked: f.Tracked, Tools: f.Tools == toolsAllow}
	out.Writable = f.Workspace.Writable != nil && *f.Workspace.Writable
	return out
}

// merge applies a lower layer's file part: globs add up, and paths count only within those of the
// upper layer.
func (f *Filesystem) merge(lower Filesystem, warn func(field, text string)) {
	f.Deny = union(f.Deny, lower.Deny)
	f.Protect = union(f.Protect, lower.Protect)
	f.ReadOnly = union(f.ReadOnly, lower.ReadOnly)
	f.Read = within(f.Read, lower.Read, "filesystem.read", warn)
	f.Write = within(f.Write, lower.Write, "filesystem.write", warn)
	if w := lower.Workspace.Writable; w != nil && (f.Workspace.Writable == nil || !*w) {
		f.Workspace.Writable = w
	}
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// within returns the paths that are in both lists. If lower is nil, that is upper. If lower is
// empty, it is no path.
func within(upper, lower []string, field string, warn func(field, text string)) []string {
	switch {
	case lower == nil:
		return upper
	case upper == nil:
		return slices.Clone(lower)
	}
	out := []string{}
	for _, l := range lower {
		if slices.ContainsFunc(upper, func(u string) bool { return under(l, u) }) {
			out = union(out, []string{l})
			continue
		}
		var inner []string
		for _, u := range upper {
			if under(u, l) {
				inner = append(inner, u)
			}
		}
		out = union(out, inner)
		warn(field, l+" is not inside what the layers above permit, and counts only as far as it is")
	}
	return out
}

func under(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}
