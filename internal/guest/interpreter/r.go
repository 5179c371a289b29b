package interpreter

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// rBoot reads the worker's source from the request pipe, after its number of lines, and runs it. R
// can read a descriptor only by its name, and the user may not open the pipes of the guest, so a
// program copies them. The code has no spaces, because R's script would start other programs to
// encode them.
const rBoot = `local({requests<-pipe("trap\t''\tINT;exec\tcat<&3","rb");eval(parse(text=readLines(requests,as.integer(readLines(requests,1L)))))})`

var rLanguage = &language{
	name:    "r",
	program: "R",
	args:    []string{"--vanilla", "--no-echo", "-e", rBoot},
	hello: sync.OnceValue(func() []byte {
		text := sourceOf("r/worker.R")
		return append(fmt.Appendf(nil, "%d\n", bytes.Count(text, []byte("\n"))), text...)
	}),
	encode:        encodeR,
	lateInterrupt: true,
	exits:         true,
}

// encodeR encodes a request as an expression on one line, because R has no parser for JSON.
func encodeR(r request) []byte {
	switch {
	case r.Renew != nil:
		return r.Renew.encodeR()
	case r.Preload != 0:
		return []byte("list(kind=\"preload\")\n")
	case r.Drain:
		return []byte("list(kind=\"drain\")\n")
	}
	var env []string
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		if name != "" { // R cannot set it
			env = append(env, quoteR(name)+"="+quoteR(r.Env[name]))
		}
	}
	return fmt.Appendf(nil, "list(kind=\"code\",n=%dL,code=%s,env=list(%s))\n", r.N, quoteR(r.Code), strings.Join(env, ","))
}

// encodeR encodes a renewal.
func (r renewal) encodeR() []byte {
	seed, dir := "NULL", "NULL"
	if r.Seed != 0 {
		seed = strconv.Itoa(int(r.Seed>>1)) + "L" // R's integers have 31 bits
	}
	word := func(s *string) string {
		if s == nil {
			return "NA_character_"
		}
		return quoteR(*s)
	}
	if r.Dir != nil {
		dir = "list(" + word(r.Dir.From) + "," + word(r.Dir.To) + ")"
	}
	var env []string
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		if c := r.Env[name]; name != "" {
			env = append(env, quoteR(name)+"=list("+word(c.From)+","+word(c.To)+")")
		}
	}
	return fmt.Appendf(nil, "list(kind=\"renew\",seed=%s,dir=%s,env=list(%s))\n", seed, dir, strings.Join(env, ","))
}

// quoteR encodes text as a literal of ASCII on one line, so that code cannot end it early and give
// commands to the worker. It drops NUL, which R's strings cannot contain.
func quoteR(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == 0:
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c < ' ' || c == 0x7f || c >= utf8.RuneSelf && c <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, c)
		case c > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, c)
		default:
			b.WriteByte(byte(c))
		}
	}
	b.WriteByte('"')
	return b.String()
}
