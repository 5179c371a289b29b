package changes

import (
	"path"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/filetree/changeset"
)

// unjudged are changes without what was found out about references of git.
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

// packed judges references that are gone as files. One that is in the file of packed
// references with what it was is not gone, and where that file stays inside, neither
// does its removal come out: the branch would be lost. What is the same is dropped.
func (j *gitJudge) packed(same map[string]bool) {
	for i := range j.set.Changes {
		c := &j.set.Changes[i]
		dir, rest := j.place(c.Path)
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
