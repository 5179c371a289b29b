package cli

import (
	"fmt"
	"strings"
)

// tellKeys says that files which are shown hold what looks like keys: programs inside read them.
func (b *box) tellKeys() {
	k := b.sb.Info().Keys
	if k == nil || k.Count == 0 {
		return
	}
	var names []string
	for _, f := range k.Files[:min(len(k.Files), 3)] {
		names = append(names, fmt.Sprintf("%s (%s)", inert(f.Name), strings.Join(f.Kinds, ", ")))
	}
	if k.Count > len(names) {
		names = append(names, "…")
	}
	what := fmt.Sprintf("%d files that are shown inside look like they hold keys", k.Count)
	if k.Count == 1 {
		what = "1 file that is shown inside looks like it holds a key"
	}
	left := ""
	if k.Left > 0 {
		left = fmt.Sprintf("; %d files were not looked at", k.Left)
	}
	b.app.note("%s: %s%s (filesystem.deny of a policy hides them)", what, strings.Join(names, ", "), left)
}
