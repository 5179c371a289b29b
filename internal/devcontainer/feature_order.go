package devcontainer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// feature is a feature whose description is known.
type feature struct {
	request     Request
	digest      string // of its artifact; "" for a directory of the workspace
	description description
	variables   []string
	needs       []int // indexes of the features that it depends on
}

// resource is the name of a feature without a version.
func (f feature) resource() string { return withoutVersion(f.request.Reference) }

func withoutVersion(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	if i := strings.LastIndexByte(ref, ':'); i > strings.LastIndexByte(ref, '/') {
		ref = ref[:i]
	}
	return ref
}

// sameAs reports whether two features install the same.
func (f feature) sameAs(other feature) bool {
	return f.digest == other.digest && f.request.Local == other.request.Local && slices.Equal(f.variables, other.variables)
}

// inOrder sorts features as the specification does, in rounds. A round has the features whose
// dependencies and predecessors are installed. Of these, it installs only those that are first in
// the preferred order, if there are any.
func inOrder(all []feature, preferred []string) ([]feature, error) {
	priority := func(f feature) int {
		if i := slices.IndexFunc(preferred, func(ref string) bool { return withoutVersion(ref) == f.resource() }); i >= 0 {
			return len(preferred) - i
		}
		return 0
	}
	done := make([]bool, len(all))
	ready := func(i int) bool {
		if done[i] {
			return false
		}
		for _, n := range all[i].needs {
			if !done[n] {
				return false
			}
		}
		for _, after := range all[i].description.InstallsAfter {
			for n, other := range all {
				if n != i && !done[n] && other.resource() == withoutVersion(after) {
					return false
				}
			}
		}
		return true
	}
	var order []feature
	for len(order) < len(all) {
		var round []int
		highest := 0
		for i := range all {
			if ready(i) {
				round = append(round, i)
				highest = max(highest, priority(all[i]))
			}
		}
		round = slices.DeleteFunc(round, func(i int) bool { return priority(all[i]) < highest })
		if len(round) == 0 {
			return nil, fault.Newf(fault.Invalid, CodeInvalid, "the features wait for each other: %s", waiting(all, done))
		}
		slices.SortStableFunc(round, func(a, b int) int { return cmp.Compare(all[a].request.Reference, all[b].request.Reference) })
		for _, i := range round {
			done[i] = true
			order = append(order, all[i])
		}
	}
	return order, nil
}

func waiting(all []feature, done []bool) string {
	var names []string
	for i, f := range all {
		if !done[i] {
			names = append(names, f.request.Reference)
		}
	}
	return strings.Join(names, ", ")
}
