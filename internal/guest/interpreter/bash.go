package interpreter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

var bashLanguage = &language{
	name:    "bash",
	program: "bash",
	args:    []string{"--norc", "--noprofile", "--noediting", "-i"},
	stdin:   true,
	hello:   func() []byte { return sourceOf("bash/worker.bash") },
	encode:  encodeBash,
	confirm: confirmBash,
	exits:   true,
}

// encodeBash encodes a request as commands. The code is one quoted word, so that it cannot end
// early and give commands to the worker. The empty line lets the parser recover from code that ends
// inside a quotation.
func encodeBash(r request) []byte {
	var b strings.Builder
	switch {
	case r.Renew != nil:
		return r.Renew.encodeBash()
	case r.Preload != 0:
		return []byte("__crannog_done 0 \"$?\"\n")
	}
	if len(r.Env) > 0 {
		b.WriteString("__crannog_set")
		for _, k := range slices.Sorted(maps.Keys(r.Env)) {
			b.WriteString(" " + quoteBash(k) + " " + quoteBash(r.Env[k]))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\\builtin \\eval %s 60>&- </dev/null\n\n", quoteBash(r.Code))
	b.Write(confirmBash(r.N))
	return []byte(b.String())
}

// confirmBash returns the command that reports the end of an execution. A second report of the same
// execution has no effect.
func confirmBash(n int) []byte {
	return fmt.Appendf(nil, "{ __crannog_done %d \"$?\"; } 2>/dev/null\n", n)
}

// encodeBash encodes a renewal as one command.
func (r renewal) encodeBash() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "__crannog_renew %d", r.Seed)
	word := func(s *string) {
		if s == nil {
			b.WriteString(" 0 ''")
			return
		}
		b.WriteString(" 1 " + quoteBash(*s))
	}
	if r.Dir != nil {
		b.WriteString(" " + quoteBash(*r.Dir.From) + " " + quoteBash(*r.Dir.To))
	} else {
		b.WriteString(" '' ''")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		b.WriteString(" " + quoteBash(name))
		word(r.Env[name].From)
		word(r.Env[name].To)
	}
	return []byte("{ " + b.String() + "; } 2>/dev/null\n")
}

// quoteBash encodes text as one word on one line. It drops NUL bytes, as bash does in scripts.
func quoteBash(s string) string {
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(s) {
		switch c := s[i]; {
		case c == 0:
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
