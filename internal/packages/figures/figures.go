// Package figures owns the totals of what the package cache answered, for metrics. The totals have
// no names of packages: sandboxes choose those, and each would become a time series of its own.
package figures

import (
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/crannog/crannog/internal/packages"
)

// Answer is a kind of answers.
type Answer struct {
	Ecosystem packages.Ecosystem
	Verdict   string
	// Cached is set if nothing was fetched for the answer. It is not set for refusals.
	Cached bool
}

// Bytes are the totals of one ecosystem.
type Bytes struct {
	Fetched int64 // from registries, also for answers that were refused in the end
	Served  int64 // to sandboxes
}

// Totals are all counts since the start of the process.
type Totals struct {
	Answers map[Answer]int64
	Bytes   map[packages.Ecosystem]Bytes
	// Unverifiable are the refusals of answers that could not be verified, or that were not what
	// the registry's own data says.
	Unverifiable map[packages.Ecosystem]int64
}

// Verdicts lists all verdicts.
func Verdicts() []string {
	return []string{packages.Passed, packages.Filtered, packages.Unverified, packages.Refused}
}

// Counter counts answers. Its zero value is ready to use, and it is safe for concurrent use.
type Counter struct {
	mu     sync.Mutex
	totals Totals
}

// Add counts an answer with its rule and the bytes that the sandbox received. The egress gateway
// wrote the fact, and a sandbox may have taken over the gateway. So an unknown ecosystem or verdict
// is not counted, because it would become a label, and a negative number counts as zero, because
// counters only rise.
func (c *Counter) Add(f packages.Fact, rule string, received int64) {
	if !packages.Known(f.Ecosystem) || !slices.Contains(Verdicts(), f.Verdict) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.totals.Answers == nil {
		c.totals = Totals{map[Answer]int64{}, map[packages.Ecosystem]Bytes{}, map[packages.Ecosystem]int64{}}
	}
	refused := f.Verdict == packages.Refused
	c.totals.Answers[Answer{f.Ecosystem, f.Verdict, f.Cached && !refused}]++
	b := c.totals.Bytes[f.Ecosystem]
	b.Fetched = sum(b.Fetched, f.Fetched)
	if !refused {
		b.Served = sum(b.Served, received)
	} else if rule == packages.RuleIntegrity {
		c.totals.Unverifiable[f.Ecosystem]++
	}
	c.totals.Bytes[f.Ecosystem] = b
}

// sum adds n to a total, which neither falls nor overflows.
func sum(total, n int64) int64 {
	n = max(n, 0)
	if n > math.MaxInt64-total {
		return math.MaxInt64
	}
	return total + n
}

// Totals returns a copy of the totals.
func (c *Counter) Totals() Totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Totals{maps.Clone(c.totals.Answers), maps.Clone(c.totals.Bytes), maps.Clone(c.totals.Unverifiable)}
}
