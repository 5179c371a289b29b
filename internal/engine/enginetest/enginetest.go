// Package enginetest owns the engine contract as a list of named rules. A rule runs exactly when
// the engine declares the features that the rule needs (see needs.go). A rule that an engine cannot
// keep is waived by name, with a reason.
package enginetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// Config describes the engine under test.
type Config struct {
	// Open opens the engine on a state directory. Opening the same directory again simulates a
	// restart of the server.
	Open func(t testing.TB, dir string) engine.Engine
	// Image is the image that sandboxes start from. Its guest is the test binary or the real guest.
	Image engine.Image
	// Residue counts, by kind, the engine's resources for a state directory: processes, control
	// groups, namespaces, objects in a service. The leak rules compare the counts before and after
	// a test. They also count the files below the directory, the mounts and sockets that name it,
	// descriptors and goroutines.
	Residue func(t testing.TB, dir string) map[string]int
	// Groups lists, for each cgroup hierarchy, the groups of sandboxes below a state directory, and
	// "" for a process that is in no group of the engine. Nil means that the engine creates no
	// groups.
	Groups func(t testing.TB, dir string) map[string][]string
	// Forbidden are shell commands that must fail in the sandbox for every user and print nothing,
	// such as system calls that only the engine's own guest may make.
	Forbidden []string
	// LosesOnlyPrograms is set if a program that exceeds the memory limit is killed and its sandbox
	// continues. Otherwise the sandbox ends, with a reason.
	LosesOnlyPrograms bool
	// MonotonicStops is set if the clocks that count from the start of a sandbox do not count the time
	// for which its state was stored, because its kernel cannot set them.
	MonotonicStops bool
	// Waive maps the names of rules that the engine cannot keep to the reasons.
	Waive map[string]string
	// Only lists rules or groups of rules ("limits/") to check, for an engine that was already
	// checked in full and is opened with other options. An empty list means all rules.
	Only []string
	// Cycles is how many sandboxes the leak rules create and remove.
	Cycles int
}

// rule is one requirement of the contract. Numbers such as P32 in the lists of rules are those of
// docs/reference/promises.md, and numbers such as F24 those of docs/internals/regressions.md.
type rule struct {
	name string
	test func(t testing.TB, c *Config)
}

// in reports whether the rule has this name or is in this group ("limits/").
func (r rule) in(nameOrGroup string) bool {
	return r.name == nameOrGroup || strings.HasSuffix(nameOrGroup, "/") && strings.HasPrefix(r.name, nameOrGroup)
}

// rules returns all rules.
func rules() []rule {
	return slices.Concat(lifecycleRules, imageRules, fileRules, execRules, limitRules, boundaryRules, restartRules, linkRules, proxyRules, coverRules, ownersRules, imageOwnersRules, namespaceRules,
		stateRules, workspaceRules, archiveRules, freezeRules, boundRules, copyLimitRules, memoryRules, copyRules, copyLinkRules, spareRules, recordRules, changesRules,
		sharedRules, leakRules, benchmarkRules)
}

// exclusiveRules lists the rules and groups that do not run concurrently with others: they count
// resources of the host or of this process, change its environment, or measure.
var exclusiveRules = []string{
	"boundary/", "leaks/", "link/cycles-leave-nothing", "proxy/cycles-leave-nothing", "copies/cycles-leave-nothing", "prestarted/are-used-and-dropped",
	"copies/a-full-disk-does-not-end-the-source", "state/replaces-in-place", "state/continues-if-it-cannot-be-replaced", "state/truncated-is-refused",
	"limits/cpu-is-bounded", "limits/usage-grows", "benchmarks/",
}

// measuringRules lists the rules that may pass by chance on a busy host. If such a rule passes, its
// waiver may still be needed.
var measuringRules = []string{"limits/cpu-is-bounded"}

// Run checks every rule as a subtest, several at once.
func Run(t *testing.T, c Config) {
	if c.Cycles == 0 {
		c.Cycles = 20
	}
	e := c.Open(t, t.TempDir())
	info := e.Info()
	if mistakes := slices.Concat(undeclared(e), c.mistakes(info)); len(mistakes) > 0 {
		t.Fatalf("%s", strings.Join(mistakes, "\n"))
	}
	run, skipped := c.plan(info)
	for _, reason := range skipped {
		t.Log(reason)
	}
	for _, r := range run {
		t.Run(r.name, func(t *testing.T) {
			if !slices.ContainsFunc(exclusiveRules, r.in) {
				t.Parallel()
			}
			c.check(t, r)
		})
	}
}

// check runs one rule. For a waived rule it checks that the rule fails.
func (c *Config) check(t testing.TB, r rule) {
	t.Helper()
	reason := c.Waive[r.name]
	if reason == "" {
		r.test(t, c)
		return
	}
	result := record(t, hosttest.Patience(hosttest.Hang), func(t testing.TB) { r.test(t, c) })
	t.Logf("waived: %s: %s", reason, result.text())
	if result.passed() && !slices.ContainsFunc(measuringRules, r.in) {
		t.Errorf("the rule %s passes, so its waiver is not needed", r.name)
	}
}

// plan returns the rules that run for the features that the engine declares. For each other rule it
// returns a text with the missing features.
func (c *Config) plan(info engine.Info) (run []rule, skipped []string) {
	for _, r := range rules() {
		if len(c.Only) > 0 && !slices.ContainsFunc(c.Only, r.in) {
			continue
		}
		if lacks := r.needs().missing(info, c); len(lacks) > 0 {
			skipped = append(skipped, fmt.Sprintf("%s does not run without %s", r.name, strings.Join(lacks, ", ")))
			continue
		}
		run = append(run, r)
	}
	return run, skipped
}

// mistakes lists errors in the configuration.
func (c *Config) mistakes(info engine.Info) (list []string) {
	all := rules()
	if c.Residue == nil {
		list = append(list, "the configuration has no Residue, so the engine's resources are not counted")
	}
	for name, reason := range c.Waive {
		i := slices.IndexFunc(all, func(r rule) bool { return r.name == name })
		switch {
		case i < 0:
			list = append(list, fmt.Sprintf("waived rule %q does not exist", name))
			continue
		case reason == "":
			list = append(list, fmt.Sprintf("rule %q is waived without a reason", name))
		}
		if lacks := all[i].needs().missing(info, c); len(lacks) > 0 {
			list = append(list, fmt.Sprintf("rule %q is waived and would not run: the engine has no %s", name, strings.Join(lacks, ", ")))
		}
	}
	groups := slices.Concat(c.Only, exclusiveRules, measuringRules)
	for _, n := range needsByRule {
		groups = append(groups, n.rules)
	}
	for _, group := range groups {
		if !slices.ContainsFunc(all, func(r rule) bool { return r.in(group) }) {
			list = append(list, fmt.Sprintf("there is no rule %q", group))
		}
	}
	slices.Sort(list)
	return list
}
