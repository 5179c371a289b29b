package changeset

import (
	"path"
	"slices"
	"strings"
)

// stagePrefix is the name prefix of the directory in which Apply prepares the changes. A sandbox
// must not export a file with such a name.
const stagePrefix = ".crannog-apply-"

// flag sets the flags of each change.
func (c *comparison) flag(all []*found) {
	if len(all) > 0 && c.o.Paths != nil {
		c.aliases = c.aliasesOf(c.o.Paths, c.o.Start)
	}
	for _, f := range all {
		ch := &f.change
		add := func(flag Flag, applies bool) {
			if applies {
				ch.Flags = append(ch.Flags, flag)
			}
		}
		e := ch.New
		if e == nil {
			e = ch.Old
		}
		add(Protected, c.protected(ch.Path))
		add(RunsByItself, c.runs(f, e))
		add(SecretName, c.hide.name(ch.Path) != ch.Path || c.hide.name(e.Target) != e.Target)
		if e = ch.New; e == nil {
			continue
		}
		add(LinkOut, e.Type == Link && leadsOut(ch.Path, e.Target))
		add(Setuid, e.Type == Regular && e.Mode&0o6000 != 0)
		add(Special, e.Type == Other || reserved(ch.Path))
		add(TooLarge, e.Type == Regular && (e.Size > c.o.Bounds.FileBytes || e.Sum == ""))
		add(Masked, e.Type == Regular && f.masked)
		// A host file that contains the same secret is not replaced unless that was requested.
		if ch.Has(Masked) && f.wasMasked && ch.Outside != nil && !ch.SameContent && ch.Conflict == "" {
			ch.Conflict = SecretOutside
		}
	}
}

// protected reports whether the policy protects a path, in any spelling and through links.
func (c *comparison) protected(name string) bool {
	if c.o.Protected == nil {
		return false
	}
	return c.o.Protected(name) || c.o.Protected(strings.Join(foldPath(name), "/")) || c.aliases != nil && c.aliases.protected(name)
}

// runs reports whether tools would execute a file without being asked, by any path that leads to
// it.
func (c *comparison) runs(f *found, e *Entry) bool {
	if c.runsAt(f.change.Path, f, e) {
		return true
	}
	return c.aliases != nil && slices.ContainsFunc(c.aliases.aliases(f.change.Path), func(name string) bool { return c.runsAt(name, f, e) })
}

// runsAt is runs for one path of the file.
func (c *comparison) runsAt(name string, f *found, e *Entry) bool {
	name = path.Join(c.o.Under, name)
	if isName(fold(path.Base(name)), "package.json") {
		// Without the texts, the changed scripts are unknown, so every change is flagged.
		return f.scripts || f.change.Omitted || f.change.Binary || !c.o.Lines && !c.o.Text
	}
	return runsByItself(name, e) || inBareRepository(name, func(name string) bool {
		t := c.files[strings.TrimPrefix(strings.TrimPrefix(name, c.o.Under), "/")]
		return t != nil && (t.now != nil || t.host != nil)
	})
}

// reserved reports whether a path is one that Apply uses for its stage.
func reserved(name string) bool {
	parts := foldPath(name)
	return len(parts) > 0 && strings.HasPrefix(parts[0], stagePrefix)
}

// leadsOut reports whether a link may lead out of the directory. It accepts ".." only at the
// beginning of a target. After another name, which may itself be a link, the target of ".." is
// unknown.
func leadsOut(name, target string) bool {
	if path.IsAbs(target) {
		return true
	}
	depth := strings.Count(name, "/")
	afterName := false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; afterName || depth < 0 {
				return true
			}
		default:
			afterName = true
		}
	}
	return false
}
