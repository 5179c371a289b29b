// Package enginetest owns the engine contract as named rules. Every engine
// passes all of them or waives one by name with a reason.
package enginetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

// Config tells the suite about the engine under test.
type Config struct {
	// Open opens the engine on a state directory. Opening the same directory
	// again is what a restart of the server does.
	Open func(t testing.TB, dir string) engine.Engine
	// Image is what boxes start from. Its guest is the test binary itself or
	// the real guest.
	Image engine.Image
	// Waive maps the name of a rule that cannot hold to the reason.
	Waive map[string]string
	// Only are the rules to check, or groups of them ("limits/"), where an
	// engine was checked in full already and is opened another way now. None are
	// all rules.
	Only []string
	// Cycles is how many boxes the leak rules make and remove.
	Cycles int
}

// rule is one promise of the contract.
type rule struct {
	name string
	test func(t *testing.T, c *Config)
}

// in reports whether the rule has a name, or is in a group ("limits/").
func (r rule) in(only string) bool {
	return r.name == only || strings.HasSuffix(only, "/") && strings.HasPrefix(r.name, only)
}

func rules() []rule {
	return slices.Concat(lifecycleRules, imageRules, execRules, limitRules, boundaryRules, restartRules, linkRules, coverRules, ownersRules, namespaceRules, stateRules, boundRules, copyLimitRules, memoryRules, copyRules, copyLinkRules, recordRules, changesRules, leakRules, benchmarkRules)
}

// alone are the rules that others beside them could disturb: they count what is
// on the whole host or in this process, change its environment, or measure.
var alone = []string{
	"boundary/", "leaks/", "link/cycles-leave-nothing", "copies/cycles-leave-nothing", "copies/spare-kernels-are-used-and-dropped",
	"copies/a-full-disk-costs-nothing", "state/replaces-in-place", "state/goes-on-if-it-cannot-be-replaced", "state/truncated-is-refused",
	"limits/cpu-is-bounded", "limits/usage-grows", "benchmarks/",
}

// Run checks every rule as a subtest, several at once.
func Run(t *testing.T, c Config) {
	if c.Cycles == 0 {
		c.Cycles = 20
	}
	all := rules()
	for name, reason := range c.Waive {
		if !slices.ContainsFunc(all, func(r rule) bool { return r.name == name }) {
			t.Errorf("waived rule %q does not exist", name)
		}
		if reason == "" {
			t.Errorf("rule %q is waived without a reason", name)
		}
	}
	for _, only := range slices.Concat(c.Only, alone) {
		if !slices.ContainsFunc(all, func(r rule) bool { return r.in(only) }) {
			t.Errorf("there is no rule %q", only)
		}
	}
	for _, r := range all {
		if len(c.Only) > 0 && !slices.ContainsFunc(c.Only, r.in) {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			if !slices.ContainsFunc(alone, r.in) {
				t.Parallel()
			}
			if reason := c.Waive[r.name]; reason != "" {
				t.Logf("waived: %s", reason)
				return
			}
			r.test(t, &c)
		})
	}
}
