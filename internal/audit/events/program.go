package events

import (
	"strings"
	"unicode/utf8"
)

// SetArguments records the arguments and the names of the variables with which the event's program
// was started, as many as the limits allow. Values of variables may be secret, and are not recorded.
func (e *Event) SetArguments(argv, env []string) {
	var cut [2]bool
	e.Argv, cut[0] = truncated(argv, maxArgs, maxArgBytes, unchanged)
	e.Env, cut[1] = truncated(env, maxNames, maxNameBytes, nameOf)
	e.Cut = e.Cut || cut[0] || cut[1] || !utf8.ValidString(e.Program)
}

// Limits of what is recorded about a program's start.
const (
	maxArgs      = 64
	maxArgBytes  = 8 << 10
	maxNames     = 256
	maxNameBytes = 4 << 10
)

func unchanged(s string) string { return s }

// nameOf returns a variable without its value, which may be a secret.
func nameOf(s string) string {
	name, _, _ := strings.Cut(s, "=")
	return name
}

// truncated applies part to each string, and returns as many as the limits allow. cut reports
// whether something was left out or is not valid UTF-8.
func truncated(all []string, maximum, bytes int, part func(string) string) (out []string, cut bool) {
	for i, s := range all {
		if i == maximum || bytes == 0 {
			return out, true
		}
		s = part(s)
		if len(s) > bytes {
			s, cut = s[:bytes], true
		}
		cut = cut || !utf8.ValidString(s)
		bytes -= len(s)
		out = append(out, s)
	}
	return out, cut
}
