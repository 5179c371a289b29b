// Package buildcontext owns the files that a Dockerfile can copy: which files of a directory belong
// to a build, and how they are sent to the server. A context may come from an untrusted repository,
// so it cannot reach files outside its directory.
package buildcontext

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/crannog/crannog/internal/fault"
)

// CodeInvalid is the code of the error for a context with files that a build must not contain.
const CodeInvalid = "build_context_invalid"

// Ignore has the patterns of a .dockerignore.
type Ignore struct {
	matcher *patternmatcher.PatternMatcher
}

// ParseIgnore parses patterns. Paths in keep belong to the context even if a pattern excludes them.
func ParseIgnore(text []byte, keep ...string) (*Ignore, error) {
	patterns, err := ignorefile.ReadAll(bytes.NewReader(text))
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, CodeInvalid, "the .dockerignore cannot be read")
	}
	for _, k := range keep {
		patterns = append(patterns, "!"+k)
	}
	m, err := patternmatcher.New(patterns)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, CodeInvalid, "the .dockerignore has an invalid pattern")
	}
	return &Ignore{m}, nil
}

// FindIgnore reads the patterns of a context: from FILE.dockerignore beside the Dockerfile, or from
// .dockerignore at the top.
func FindIgnore(root *os.Root, dockerfile string) (*Ignore, error) {
	for _, name := range []string{dockerfile + ".dockerignore", ".dockerignore"} {
		if strings.HasPrefix(name, "../") || path.IsAbs(name) {
			continue
		}
		text, err := root.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return ParseIgnore(text)
	}
	return ParseIgnore(nil)
}

// matches reports whether a path is excluded, given the result for its parent directory.
func (i *Ignore) matches(name string, above patternmatcher.MatchInfo) (bool, patternmatcher.MatchInfo, error) {
	return i.matcher.MatchesUsingParentResults(name, above)
}

// prunes reports whether no path below an excluded directory can be included again.
func (i *Ignore) prunes(dir string) bool {
	if !i.matcher.Exclusions() {
		return true
	}
	for _, p := range i.matcher.Patterns() {
		if !p.Exclusion() {
			continue
		}
		text := strings.TrimPrefix(p.String(), "/")
		if strings.HasPrefix(text+"/", dir+"/") || strings.HasPrefix(dir+"/", text+"/") || strings.ContainsAny(text, "*?[\\") {
			return false
		}
	}
	return true
}
