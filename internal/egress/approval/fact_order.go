package approval

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// importantFacts are the facts that matter for a decision, in the order of display. The console
// has its own, longer list: factOrder in console/src/approvals/request.ts.
var importantFacts = []string{"method", "target", "covers", "body", "action", "package", "version", "repo", "secret", "host", "port"}

// FactNames returns the names of facts in the order of display: the important ones first, then the
// others by name, and digests last. A sandbox controls some names, such as those of headers, and
// must not be able to push important ones out of view.
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
