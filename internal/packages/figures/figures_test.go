package figures

import (
	"math"
	"testing"

	"github.com/crannog/crannog/internal/packages"
)

func TestAddCountsAnswers(t *testing.T) {
	var c Counter
	c.Add(packages.Fact{Ecosystem: packages.NPM, Name: "a", Verdict: packages.Passed, Fetched: 100}, "registry", 90)
	c.Add(packages.Fact{Ecosystem: packages.NPM, Name: "a", Verdict: packages.Passed, Cached: true}, "registry", 90)
	c.Add(packages.Fact{Ecosystem: packages.NPM, Name: "b", Verdict: packages.Passed, Cached: true}, "registry", 10)
	c.Add(packages.Fact{Ecosystem: packages.Go, Name: "c", Verdict: packages.Refused, Fetched: 7, Cached: true}, packages.RuleIntegrity, 55)
	c.Add(packages.Fact{Ecosystem: packages.Go, Name: "c", Verdict: packages.Refused}, "packages.deny", 55)
	got := c.Totals()
	for a, want := range map[Answer]int64{
		{packages.NPM, packages.Passed, false}: 1, {packages.NPM, packages.Passed, true}: 2,
		{packages.Go, packages.Refused, false}: 2, {packages.Go, packages.Refused, true}: 0,
	} {
		if got.Answers[a] != want {
			t.Errorf("%+v: got %d, want %d", a, got.Answers[a], want)
		}
	}
	if b := got.Bytes[packages.NPM]; b != (Bytes{Fetched: 100, Served: 190}) {
		t.Errorf("npm: got %+v", b)
	}
	// The page that explains a refusal is no package.
	if b := got.Bytes[packages.Go]; b != (Bytes{Fetched: 7}) {
		t.Errorf("go: got %+v", b)
	}
	// Only the refusal by the rule of verification is one.
	if got.Unverifiable[packages.Go] != 1 || got.Unverifiable[packages.NPM] != 0 {
		t.Errorf("got %v", got.Unverifiable)
	}
}

func TestAddIgnoresWhatAGatewayInvents(t *testing.T) {
	var c Counter
	c.Add(packages.Fact{Ecosystem: "x\"} 1\n", Verdict: packages.Passed, Fetched: 1}, "", 1)
	c.Add(packages.Fact{Ecosystem: packages.NPM, Verdict: "invented", Fetched: 1}, "", 1)
	if got := c.Totals(); len(got.Answers) != 0 || len(got.Bytes) != 0 {
		t.Errorf("got %+v", got)
	}
	c.Add(packages.Fact{Ecosystem: packages.NPM, Verdict: packages.Passed, Fetched: -5}, "", -5)
	c.Add(packages.Fact{Ecosystem: packages.NPM, Verdict: packages.Passed, Fetched: math.MaxInt64}, "", 3)
	c.Add(packages.Fact{Ecosystem: packages.NPM, Verdict: packages.Passed, Fetched: math.MaxInt64}, "", 4)
	if got := c.Totals().Bytes[packages.NPM]; got != (Bytes{Fetched: math.MaxInt64, Served: 7}) {
		t.Errorf("got %+v, want no falling and no negative total", got)
	}
}

func TestTotalsAreACopy(t *testing.T) {
	var c Counter
	fact := packages.Fact{Ecosystem: packages.PyPI, Verdict: packages.Passed}
	c.Add(fact, "", 1)
	before := c.Totals()
	c.Add(fact, "", 1)
	if n := before.Answers[Answer{packages.PyPI, packages.Passed, false}]; n != 1 {
		t.Errorf("got %d, want 1", n)
	}
}
