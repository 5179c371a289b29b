package changes

import (
	"path"

	"github.com/crannog/crannog/internal/filetree/gitrepo/objects"
)

// gitVerdict holds the first hidden and the first protected file that a commit changes.
type gitVerdict struct{ hidden, protected string }

func (v gitVerdict) isEmpty() bool { return v == gitVerdict{} }

func (v *gitVerdict) add(o gitVerdict) {
	if o.hidden != "" {
		v.hidden = first(v.hidden, o.hidden)
	}
	if o.protected != "" {
		v.protected = first(v.protected, o.protected)
	}
}

// inspectReference returns the hidden and protected files that the new commits of a reference
// change, compared with the commits on which they are based; old is the reference's earlier target.
func (j *gitInspection) inspectReference(r *inspectedRepository, dir, id, old string) (gitVerdict, error) {
	if r.err != nil {
		return gitVerdict{}, r.err
	}
	v, err := j.inspectTip(r, workTree(dir), id, old)
	if err != nil || v.isEmpty() || r.history.Whole() {
		return v, err
	}
	// The set of new commits must be exact before a reference is rejected.
	if err := r.history.Complete(); err != nil {
		return gitVerdict{}, err
	}
	r.inspected = nil
	return j.inspectTip(r, workTree(dir), id, old)
}

func (j *gitInspection) inspectTip(r *inspectedRepository, inside, id, old string) (gitVerdict, error) {
	tip, err := r.history.Find(id)
	if err != nil || tip == nil {
		return gitVerdict{}, err
	}
	bases, err := r.history.Bases(tip)
	if err != nil {
		return gitVerdict{}, err
	}
	if len(bases) == 0 {
		if old == "" {
			return gitVerdict{}, nil // an unrelated history, which replaces nothing
		}
		earlier, err := r.history.Find(old)
		if err != nil {
			return gitVerdict{}, err
		}
		tree := ""
		if earlier != nil {
			tree = earlier.Tree
		}
		bases = []string{tree}
	}
	v, err := j.compareTrees(r, inside, bases, tip.Tree)
	if err != nil || v.hidden != "" {
		return v, err
	}
	// If an intermediate commit removes a hidden file, the file is lost wherever that commit is
	// checked out, cherry-picked, reverted or bisected, even if a later commit restores it.
	newCommits, err := r.history.New(tip)
	if err != nil {
		return gitVerdict{}, err
	}
	for _, c := range newCommits {
		verdict, err := j.inspectCommit(r, inside, c)
		if err != nil {
			return gitVerdict{}, err
		}
		v.add(verdict)
	}
	return v, nil
}

// inspectCommit checks one commit. Only files that differ from those of every parent are compared
// with the bases: a merge may take one side's file, and so may later commits.
func (j *gitInspection) inspectCommit(r *inspectedRepository, inside string, c *objects.Commit) (gitVerdict, error) {
	if v, ok := r.inspected[c]; ok {
		return v, nil
	}
	v, err := j.compareCommit(r, inside, c)
	if err == nil {
		if r.inspected == nil {
			r.inspected = map[*objects.Commit]gitVerdict{}
		}
		r.inspected[c] = v
	}
	return v, err
}

func (j *gitInspection) compareCommit(r *inspectedRepository, inside string, c *objects.Commit) (gitVerdict, error) {
	touched := false
	for _, parent := range r.history.Parents(c) {
		err := r.reader.Changed(parent, c.Tree, func(name, _ string) error {
			touched = touched || j.isGuarded(path.Join(inside, name))
			return nil
		})
		if err != nil {
			return gitVerdict{}, err
		}
	}
	if !touched {
		return gitVerdict{}, nil
	}
	bases, err := r.history.Bases(c)
	if err != nil {
		return gitVerdict{}, err
	}
	return j.compareTrees(r, inside, bases, c.Tree)
}

// isGuarded reports whether the policy hides or protects a path.
func (j *gitInspection) isGuarded(inside string) bool {
	return j.isHidden(inside) || j.match.Protected(inside)
}

// compareTrees compares a tree with its bases. A file is unchanged if it equals that of any base.
func (j *gitInspection) compareTrees(r *inspectedRepository, inside string, bases []string, tree string) (v gitVerdict, err error) {
	changed := map[string]int{}
	for _, base := range bases {
		err := r.reader.Changed(base, tree, func(name, _ string) error {
			if j.isGuarded(path.Join(inside, name)) {
				changed[name]++
			}
			return nil
		})
		if err != nil {
			return gitVerdict{}, err
		}
	}
	for name, n := range changed {
		switch {
		case n < len(bases):
		case j.isHidden(path.Join(inside, name)):
			v.add(gitVerdict{hidden: name})
		default:
			v.add(gitVerdict{protected: name})
		}
	}
	return v, nil
}

// first returns the alphabetically first of two names, ignoring empty ones.
func first(a, b string) string {
	if a == "" || b < a {
		return b
	}
	return a
}
