package changes

import (
	"path"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/filetree/changeset"
)

// withoutGitFlags returns changes without the flags of git references.
func withoutGitFlags(list []changeset.Change) []changeset.Change {
	out := slices.Clone(list)
	for i := range out {
		if out[i].Has(changeset.HiddenChanged) || out[i].Has(changeset.GitUnchecked) {
			out[i].Flags = slices.DeleteFunc(slices.Clone(out[i].Flags), func(f changeset.Flag) bool {
				return f == changeset.HiddenChanged || f == changeset.GitUnchecked
			})
		}
	}
	return out
}

// checkPacked checks references whose files were removed. If packed-refs has the same reference,
// the reference still exists. If packed-refs itself is not exported, the removal must not be
// exported either, because the branch would be lost. Unchanged references are dropped.
func (j *gitInspection) checkPacked(same map[string]bool) {
	for i := range j.set.Changes {
		c := &j.set.Changes[i]
		dir, rest := j.repositoryOf(c.Path)
		if c.New != nil || c.Old == nil || c.Old.Type != changeset.Regular || !strings.HasPrefix(rest, "refs/") {
			continue
		}
		at, ok := j.byPath[path.Join(dir, "packed-refs")]
		if !ok {
			continue
		}
		all := &j.set.Changes[at]
		text, _ := j.text(all, maxRefFile)
		switch id, packed := refNames("packed-refs", string(text))[rest]; {
		case packed && j.earlierReferences(c.Path)[rest] == id:
			same[c.Path] = true
		case all.Refused():
			c.Flags = append(c.Flags, changeset.GitUnchecked)
		}
	}
	j.set.Changes = slices.DeleteFunc(j.set.Changes, func(c changeset.Change) bool { return same[c.Path] })
}
