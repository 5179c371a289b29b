package changes

import (
	"path"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/filetree/changeset"
)

// unjudged returns changes without the flags of git references.
func unjudged(list []changeset.Change) []changeset.Change {
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

// packed checks references whose files were removed. If packed-refs has the same reference, the
// reference still exists. If packed-refs itself is not exported, the removal must not be exported
// either, because the branch would be lost. Unchanged references are dropped.
func (j *gitInspection) packed(same map[string]bool) {
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
		case packed && j.names(c.Path)[rest] == id:
			same[c.Path] = true
		case all.Refused():
			c.Flags = append(c.Flags, changeset.GitUnchecked)
		}
	}
	j.set.Changes = slices.DeleteFunc(j.set.Changes, func(c changeset.Change) bool { return same[c.Path] })
}
