package interpreter

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
)

var bashLanguage = &language{
	name:    "bash",
	program: "bash",
	args:    []string{"--norc", "--noprofile", "--noediting", "-i"},
	stdin:   true,
	hello: sync.OnceValue(func() []byte {
		text, err := fs.ReadFile(sources, "bash/worker.bash")
		if err != nil {
			panic("embedded workers: " + err.Error())
		}
		return text
	}),
	encode: encodeBash,
	exits:  true,
}

// encodeBash renders a request as commands. The code is one quoted word, so
// no code can end it and speak to the worker outside of it. The empty line
// lets the parser recover from code that ends inside a quotation.
func encodeBash(r request) []byte {
	var b strings.Builder
	if len(r.Env) > 0 {
		b.WriteString("__crannog_set")
		for _, k := range slices.Sorted(maps.Keys(r.Env)) {
			b.WriteString(" " + quoteBash(k) + " " + quoteBash(r.Env[k]))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\\builtin \\eval %s 60>&- </dev/null\n\n", quoteBash(r.Code))
	fmt.Fprintf(&b, "{ __crannog_done %d \"$?\"; } 2>/dev/null\n", r.N)
	return []byte(b.String())
}

// quoteBash renders text as one word on one line. NUL bytes are left out, as
// bash leaves them out of scripts.
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
