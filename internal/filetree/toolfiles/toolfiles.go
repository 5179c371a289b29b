// Package toolfiles owns the catalogue of files that tools on a person's machine read without being
// asked: files that they execute or obey, and files in which they store credentials. Both lists
// grow with the tools. An entry names the tool and when it reads the file, so that a message can
// explain it.
package toolfiles

import "strings"

// Entry is one file or directory that a tool reads.
type Entry struct {
	// Name is written in lower case, with slashes, and means the path at any depth:
	//
	//	.envrc            a file
	//	.vscode/          a directory with all that is in it
	//	.mvn/jvm.config   a file of such a directory
	//	*.pth             files by the end of their name
	//	eslint.config.*   files by its beginning
	Name string
	// Tool is the tool that reads the file, and When is the occasion.
	Tool, When string
}

// Kind is the form of an entry's name.
type Kind int

// The forms of names.
const (
	File   Kind = iota // one or more parts, the last of which is a file
	Dir                // a directory with all that is in it
	Suffix             // *.ext
	Prefix             // name.*
)

// Form returns the form of a name, and the part to compare.
func (e Entry) Form() (kind Kind, text string) {
	switch {
	case strings.HasSuffix(e.Name, "/"):
		return Dir, strings.TrimSuffix(e.Name, "/")
	case strings.HasPrefix(e.Name, "*"):
		return Suffix, e.Name[1:]
	case strings.HasSuffix(e.Name, "*"):
		return Prefix, strings.TrimSuffix(e.Name, "*")
	}
	return File, e.Name
}

// each returns entries for names that the same tool reads on the same occasion.
func each(tool, when string, names ...string) []Entry {
	all := make([]Entry, 0, len(names))
	for _, name := range names {
		all = append(all, Entry{Name: name, Tool: tool, When: when})
	}
	return all
}

// Glob returns the entry as a pattern of a policy.
func (e Entry) Glob() string {
	switch kind, text := e.Form(); kind {
	case Dir:
		return "**/" + text + "/**"
	case Suffix:
		return "**/*" + text
	case Prefix:
		return "**/" + text + "*"
	default:
		return "**/" + text
	}
}

// Globs returns the patterns of entries.
func Globs(entries []Entry) []string {
	all := make([]string, 0, len(entries))
	for _, e := range entries {
		all = append(all, e.Glob())
	}
	return all
}
