package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/egress"
)

const (
	// maxProblems limits the number of problems in an error.
	maxProblems = 10
	// The following limits keep decisions fast and the memory of a client's document small.
	maxHosts      = 1024
	maxRules      = 1024 // rules of one block
	maxEntries    = 256  // entries of any other list
	maxBinds      = 64
	maxGlobLength = 512
	maxDuration   = Duration(168 * time.Hour)
	maxCount      = 1 << 50
)

// checker collects the problems of a document.
type checker struct {
	lines map[string]int
	found []string
	more  int
}

func (c *checker) bad(field, format string, args ...any) {
	if len(c.found) == maxProblems {
		c.more++
		return
	}
	text := field + ": " + fmt.Sprintf(format, args...)
	if line := c.line(field); line > 0 {
		text = "line " + strconv.Itoa(line) + ": " + text
	}
	c.found = append(c.found, text)
}

// line returns the line of a field, or of the nearest enclosing field that is present.
func (c *checker) line(field string) int {
	for {
		if n := c.lines[field]; n > 0 || field == "" {
			return n
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
}

func (c *checker) err() error {
	if len(c.found) == 0 {
		return nil
	}
	if c.more > 0 {
		c.found = append(c.found, fmt.Sprintf("and %d more", c.more))
	}
	return invalid(strings.Join(c.found, "; "))
}

// check validates the values of the fields. lines has the known lines of fields.
func (d *Document) check(lines map[string]int) error {
	c := &checker{lines: lines}
	if d.Policy != "v1" {
		c.bad("policy", "must be v1, the only version")
	}
	if d.Name != "" && !word(d.Name, "._-/") {
		c.bad("name", "must be up to 64 letters, digits and . _ - /")
	}
	c.word("level", d.Level, levels)
	c.word("isolation.at_least", d.Isolation.AtLeast, boundaries)
	c.word("isolation.containers", d.Isolation.Containers, containers)
	c.files(&d.Filesystem)
	c.network(&d.Network)
	c.git(&d.Git)
	c.packages(&d.Packages)
	c.secrets(&d.Secrets, &d.Network)
	c.word("approvals.on_timeout", string(d.Approvals.OnTimeout), []string{"deny"})
	c.quorum("approvals.quorum", d.Approvals.Quorum)
	c.duration("approvals.timeout", d.Approvals.Timeout, maxDuration)
	return c.err()
}

// word checks a setting with a fixed set of values. "" means that it is absent.
func (c *checker) word(field, value string, of []string) {
	if value != "" && !slices.Contains(of, value) {
		c.bad(field, "%q is not one of %s", clip(value), strings.Join(of, ", "))
	}
}

func (c *checker) effect(field string, e egress.Effect) { c.word(field, string(e), effects) }

func (c *checker) quorum(field string, n int) {
	if n < 0 || n > 10 {
		c.bad(field, "must be 1 to 10")
	}
}

func (c *checker) duration(field string, d, limit Duration) {
	if d != 0 && (d < Duration(time.Second) || d > limit) {
		c.bad(field, "must be 1s to %s", limit)
	}
}

// list checks the length of a list. An empty list is an error, because an absent list means "all"
// and an empty one is easily misread as that.
func (c *checker) list(field string, n, limit int, empty bool) {
	if empty {
		c.bad(field, "an empty list matches nothing; leave the field out for all")
	}
	if n > limit {
		c.bad(field, "has %d entries, at most %d are allowed", n, limit)
	}
}

// word reports whether s consists of 1 to 64 letters, digits and characters in others.
func word(s, others string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte(others, c) >= 0:
		default:
			return false
		}
	}
	return true
}

func (c *checker) files(f *Filesystem) {
	c.word("filesystem.workspace.mode", f.Workspace.Mode, modes)
	c.word("filesystem.tracked", f.Tracked, tracked)
	c.word("filesystem.tools", f.Tools, tools)
	for _, l := range []struct {
		field string
		paths []string
		globs bool
	}{
		{"filesystem.read", f.Read, false}, {"filesystem.write", f.Write, false},
		{"filesystem.deny", f.Deny, true}, {"filesystem.protect", f.Protect, true},
		{"filesystem.read_only", f.ReadOnly, true},
	} {
		c.list(l.field, len(l.paths), maxEntries, false)
		for i, p := range l.paths {
			field := l.field + "[" + strconv.Itoa(i) + "]"
			switch {
			case l.globs:
				c.glob(field, p, "/", "**/")
			case !cleanPath(p):
				c.bad(field, "%q is not an absolute path without . and .. and globs", clip(p))
			}
		}
	}
	c.export(&f.Export)
}

// glob checks a pattern that must begin with one of the given prefixes.
func (c *checker) glob(field, g string, begins ...string) {
	rest := g
	for _, b := range begins {
		rest = strings.TrimPrefix(rest, b)
	}
	switch {
	case g == "" || len(g) > maxGlobLength:
		c.bad(field, "a glob has 1 to %d characters", maxGlobLength)
	case len(begins) > 0 && g != "**" && !slices.ContainsFunc(begins, func(b string) bool { return strings.HasPrefix(g, b) }):
		c.bad(field, "%q must begin with %s", clip(g), strings.Join(begins, " or "))
	case strings.ContainsFunc(g, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }) || strings.ContainsAny(g, `\?[]{};#`):
		c.bad(field, "%q contains a character that globs cannot have; only * and ** are special", clip(g))
	case slices.Contains(strings.Split(rest, "/"), "..") || slices.Contains(strings.Split(rest, "/"), ".") || strings.Contains(g, "//"):
		c.bad(field, "%q contains an empty, . or .. segment, which no path has", clip(g))
	case slices.ContainsFunc(strings.Split(g, "/"), func(s string) bool { return strings.Contains(s, "**") && s != "**" }):
		c.bad(field, "%q: ** is a segment of its own", clip(g))
	}
}

func (c *checker) git(g *Git) {
	c.effect("git.fetch", g.Fetch)
	c.effect("git.push.unlisted", g.Push.Unlisted)
	c.effect("git.push.delete", g.Push.Delete)
	c.effect("git.push.force", g.Push.Force)
	c.list("git.remotes", len(g.Remotes), maxEntries, false)
	for i, r := range g.Remotes {
		field := "git.remotes[" + strconv.Itoa(i) + "]"
		if !validName(r.Host) {
			c.bad(field+".host", "%q is not an exact host name in lower case", clip(r.Host))
		}
		if strings.HasPrefix(r.Repo, "/") || strings.HasSuffix(r.Repo, ".git") {
			c.bad(field+".repo", "%q must not have a slash at the beginning or .git at the end", clip(r.Repo))
		}
		c.glob(field+".repo", r.Repo)
		c.list(field+".push", len(r.Push), maxEntries, false)
		for j, ref := range r.Push {
			c.glob(field+".push["+strconv.Itoa(j)+"]", ref, "refs/")
		}
	}
}
