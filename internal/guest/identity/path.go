package identity

import (
	"errors"
	"path"
	"strings"
)

// maxPath is the longest path that Linux accepts.
const maxPath = 4096

// Errors of Resolve.
var (
	ErrPathNUL  = errors.New("path contains a NUL byte")
	ErrPathLong = errors.New("path is longer than 4096 bytes")
)

// Resolve converts the path of a request into an absolute one. Relative paths begin at the user's
// home, and so does "~". An empty path is fallback or, if that is empty too, the home. The result
// may lead anywhere in the sandbox: the sandbox's kernel decides what the user may do there.
func (u User) Resolve(name, fallback string) (string, error) {
	if strings.IndexByte(name, 0) >= 0 {
		return "", ErrPathNUL
	}
	if len(name) > maxPath {
		return "", ErrPathLong
	}
	if name == "" {
		name = fallback
	}
	home := path.Join("/", u.Home)
	switch {
	case name == "" || name == "~":
		return home, nil
	case strings.HasPrefix(name, "~/"):
		return path.Join(home, name[2:]), nil
	case path.IsAbs(name):
		return path.Clean(name), nil
	}
	return path.Join(home, name), nil
}
