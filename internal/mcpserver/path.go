package mcpserver

import (
	"path"
	"strings"
)

// cleanName makes a path relative to the root of the sandbox, without dots. The path is opened
// inside, as the sandbox's user, and never on the host.
func cleanName(p string) string {
	if !strings.HasPrefix(p, "/") {
		p = path.Join(workspace, p)
	}
	p = strings.TrimPrefix(path.Clean(p), "/")
	if p == "" {
		return "."
	}
	return p
}

// absPath returns a name as an absolute path, which people and agents use.
func absPath(name string) string {
	if name == "." {
		return "/"
	}
	return "/" + name
}
