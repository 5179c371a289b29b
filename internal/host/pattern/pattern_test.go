package pattern_test

import (
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/host/pattern"
)

func TestPatternIsCompiledAtFirstUse(t *testing.T) {
	p := pattern.New(`(`) // not valid: compiled here, it would panic here
	defer func() {
		if recover() == nil {
			t.Error("the use of an expression that is not valid did not panic")
		}
	}()
	p.MatchString("")
}

func TestGoroutinesShareOnePattern(t *testing.T) {
	p := pattern.New(`^[a-z]+$`)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			first, second := p.Regexp(), p.Regexp()
			if !p.MatchString("abc") || p.MatchString("aBc") || first != second {
				t.Error("got another result than of the expression itself, or two of them")
			}
		})
	}
	all.Wait()
}
