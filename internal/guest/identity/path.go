package identity

import (
	"errors"
	"path"
	"strings"
)

// maxPath is the longest path that Linux takes.
const maxPath = 4096

// Errors of Resolve.
var (
	ErrPathNUL  = errors.New("path contains a NUL byte")
	ErrPathLong = errors.New("path is longer than 4096 bytes")
)

// Resolve turns the path of a request into an absolute one. Relative paths
// begin at the user's home, as does "~". An empty path is fallback or, where
// that is empty too, the home. The result may lead anywhere in the sandbox:
// what the user may do there is up to its kernel.
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
