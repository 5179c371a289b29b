// Package pattern owns regular expressions that are compiled when they are first used. Each process
// of a sandbox on the host is the same program, so what a package compiles at the start costs page
// faults in each of them, though most never use it.
package pattern

import (
	"regexp"
	"sync"
)

// Pattern is a regular expression. All goroutines can use it.
type Pattern struct {
	compiled func() *regexp.Regexp
}

// New returns a pattern. Its first use panics if the expression is not valid.
func New(expression string) Pattern {
	return Pattern{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })}
}

// MatchString reports whether a part of s matches.
func (p Pattern) MatchString(s string) bool { return p.compiled().MatchString(s) }

// Regexp returns the compiled expression.
func (p Pattern) Regexp() *regexp.Regexp { return p.compiled() }
