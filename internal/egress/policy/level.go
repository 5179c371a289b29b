package policy

import (
	"embed"
	"slices"
	"sync"

	"github.com/crannog/crannog/internal/fault"
)

//go:embed levels/*.yaml
var levelFiles embed.FS

// Levels returns the names of the shipped levels, the strictest first.
func Levels() []string {
	out := slices.Clone(levels)
	slices.Reverse(out)
	return out
}

// LevelText returns the text of a shipped level, with its comments.
func LevelText(name string) ([]byte, error) {
	if slices.Contains(levels, name) {
		if b, err := levelFiles.ReadFile("levels/" + name + ".yaml"); err == nil {
			return b, nil
		}
	}
	return nil, fault.Newf(fault.Invalid, "policy_invalid", "there is no level %q", clip(name)).WithHint("The levels are strict, standard, light and minimal.")
}

// parsed caches the parsed levels. Each is parsed on first use, so that a process without decisions
// parses none.
var parsed = map[string]func() (Document, error){
	"strict":   sync.OnceValues(func() (Document, error) { return parseLevel("strict") }),
	"standard": sync.OnceValues(func() (Document, error) { return parseLevel("standard") }),
	"light":    sync.OnceValues(func() (Document, error) { return parseLevel("light") }),
	"minimal":  sync.OnceValues(func() (Document, error) { return parseLevel("minimal") }),
}

func parseLevel(name string) (Document, error) {
	b, err := LevelText(name)
	if err != nil {
		return Document{}, err
	}
	return Parse(b)
}

// Level returns a shipped level as a document. Its lists are shared and must not be changed.
func Level(name string) (Document, error) {
	if f := parsed[name]; f != nil {
		return f()
	}
	_, err := LevelText(name)
	return Document{}, err
}
