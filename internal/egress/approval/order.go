package approval

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// importantFacts are the facts by which a person judges, in the order in which they are shown. The
// console has the same list.
var importantFacts = []string{"method", "target", "covers", "body", "action", "package", "version", "repo", "secret", "host", "port"}

// FactNames returns the names of facts in the order of display: first those by which a person
// judges, then the others by name, and digests last. A sandbox chooses some names, such as those of
// headers, and must not push the important ones out of sight.
func FactNames(facts map[string]string) []string {
	rank := func(name string) int {
		if i := slices.Index(importantFacts, name); i >= 0 {
			return i
		}
		if strings.HasSuffix(name, "_sha256") {
			return len(importantFacts) + 1
		}
		return len(importantFacts)
	}
	return slices.SortedFunc(maps.Keys(facts), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b))
	})
}
