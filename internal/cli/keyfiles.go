package cli

import (
	"fmt"
	"strings"
)

// reportKeys warns that files of the workspace seem to contain keys, which programs inside can
// read. Only some files are checked. The number of unchecked files is shown with -v and by inspect.
func (b *runSandbox) reportKeys() {
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
	what, them := fmt.Sprintf("%d files that seem to contain keys", k.Count), "them"
	if k.Count == 1 {
		what, them = "1 file that seems to contain a key", "it"
	}
	b.app.note("programs inside can read %s: %s; to hide %s, list %s under filesystem.deny in a --policy file",
		what, strings.Join(names, ", "), them, them)
	if k.Left > 0 && b.app.verbose {
		b.app.note("%d files were not checked for keys", k.Left)
	}
}
