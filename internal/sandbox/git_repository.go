package sandbox

import (
	"path"
	"strings"
)

// Repo is a git repository in a workspace that tracks files which the policy hides. The files are
// still readable inside, from the repository's history.
type Repo struct {
	Top   string `json:"top"`   // the work tree, by its path inside
	Index string `json:"index"` // by its path inside
	// Hidden are the hidden files, and directories with tracked files, relative to Top.
	Hidden []string `json:"hidden"`
	// Tracked counts the hidden files that git tracks; Names are the first of them.
	Tracked int      `json:"tracked"`
	Names   []string `json:"names,omitempty"`
	// Without is set if the repository is hidden too, so that the sandbox is without it.
	Without bool `json:"without,omitempty"`
}

// Tracked describes the hidden files that git tracks, and names the first few. Their contents can
// be read inside, from the history of their repositories, unless that is hidden too.
type Tracked struct {
	Count int
	Names []string // relative to the workspace
	// Without is set if their repositories are hidden.
	Without bool
}

// tracked returns the tracked hidden files of all repositories.
func (b Base) tracked() Tracked {
	var t Tracked
	for _, r := range b.Repos {
		t.Count += r.Tracked
		t.Without = r.Without // one policy applies to all of them
		for _, name := range r.Names {
			if len(t.Names) < MaxNamed {
				t.Names = append(t.Names, strings.TrimPrefix(path.Join(r.Top, name), WorkspaceDir+"/"))
			}
		}
	}
	return t
}

// Shared is the repository of a workspace that is a linked work tree or a submodule. It lies
// outside of the workspace, and is mounted where the work tree's .git refers to.
type Shared struct {
	Source string `json:"source"` // on the host
	Target string `json:"target"` // inside
	// Worktree is the name of the linked work tree in it, or "".
	Worktree string `json:"worktree,omitempty"`
}

// MaxNamed limits the number of hidden files that the answer to a start names.
const MaxNamed = 20
