package cli

import "strings"

// reportTracked warns that git tracks hidden files: only the copies in the work tree are hidden,
// while every commit that contains the files still shows them.
func (b *runSandbox) reportTracked() {
	t := b.sb.Info().HiddenTracked
	if t == nil {
		return
	}
	var names []string
	for _, name := range t.Names[:min(len(t.Names), 3)] {
		names = append(names, inert(name))
	}
	if t.Count > len(names) {
		names = append(names, "…")
	}
	what, them := "%d tracked files are hidden", "them"
	if t.Count == 1 {
		what, them = "%d tracked file is hidden", "it"
	}
	list := strings.Join(names, ", ")
	if t.Without {
		b.app.note(what+" (%s), and the git repository with its history too, so git does not work inside. "+
			"--level standard shows the repository, including the hidden files in its history", t.Count, list)
		return
	}
	b.app.note(what+" (%s): git's history inside still shows %s", t.Count, list, them)
}
