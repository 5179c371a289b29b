// Package escape_test makes every escape attempt on every engine, and on the bare host, where each
// must succeed.
package escape_test

import (
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
	"github.com/crannog/crannog/tests/escape/attempts"
)

var (
	program string
	update  = flag.Bool("update", false, "rewrite the results in internal/enginebench for the engines that run, and the table in docs/isolation.md")
)

func TestMain(m *testing.M) { os.Exit(servetest.Main(m, &program)) }

// engines are the engines that the attempts run on.
var engines = []attackedEngine{
	{name: "gvisor", users: []string{"user", "root"}, level: "standard"},
	{name: "jail", users: []string{"user", "root"}, level: "light"},
	// Docker's sandboxes have no root inside, and no disk limit that a caller could set.
	{name: "docker", users: []string{"user"}, level: "light", image: "escape:1", full: true, unlimited: true},
}

// attackedEngine is an engine and how its sandbox is created.
type attackedEngine struct {
	name      string
	users     []string
	level     string
	image     string
	full      bool // only in make test-escape
	unlimited bool // without limits of disk and files
}

func TestAttemptsAreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, a := range attempts.All() {
		if a.Class == "" || a.Name == "" || a.Gain == "" || names[a.Name] {
			t.Errorf("an attempt lacks a class, name or gain, or its name is not unique: %+v", a)
		}
		names[a.Name] = true
	}
	if len(names) < 85 || len(attempts.Classes()) < 18 {
		t.Errorf("got %d attempts in %d classes, want at least 85 in 18", len(names), len(attempts.Classes()))
	}
	for engine, list := range accepted {
		for name, why := range list {
			if !names[name] || why == "" {
				t.Errorf("%s: accepted has the attempt %q with the reason %q, want a known attempt and a reason", engine, name, why)
			}
		}
	}
}

// P3, P9: no attempt succeeds inside, and each succeeds on the host.
func TestEscapes(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	if hosttest.Full() {
		startDocker(t, "escape:1")
	}
	host := newHost(t)
	host.control(t)
	for _, e := range engines {
		if e.full && !hosttest.Full() {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			answers := host.attack(t, e)
			host.wantUnchanged(t)
			checkAnswers(t, e.name, answers)
		})
	}
}

// checkAnswers fails for each attempt that succeeded and is not accepted, and compares the rest
// with the results in the documentation.
func checkAnswers(t *testing.T, engine string, answers map[string][]attempts.Answer) {
	t.Helper()
	found := result{Attempts: len(attempts.All()), Blocked: map[string]int{}}
	for _, a := range attempts.All() {
		list := answers[a.Name]
		if len(list) == 0 {
			t.Errorf("no answer to %s", a.Name)
			continue
		}
		why := accepted[engine][a.Name]
		i := slices.IndexFunc(list, func(x attempts.Answer) bool { return x.Verdict == attempts.Escaped })
		switch {
		case i >= 0 && why == "":
			t.Errorf("%s (%s) succeeded: %q. It would give %s", a.Name, a.Class, list[i].Text, a.Gain)
		case i < 0 && why != "":
			t.Errorf("%s is refused (%s), but listed as accepted: %s", a.Name, list[0].Text, why)
		case i < 0:
			found.Blocked[a.Class]++
		}
	}
	if !t.Failed() {
		compare(t, engine, found)
	}
}
