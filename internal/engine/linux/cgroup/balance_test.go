package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// Groups that use the processors all the time get a lower weight than others. If all groups do so
// equally, all get the lower weight.
func TestBusyGroupsAreLowered(t *testing.T) {
	normal, lowered := func() *groupState { return &groupState{} }, func() *groupState { return &groupState{lowered: true} }
	for name, c := range map[string]struct {
		groups []*groupState
		shares []float64
		want   []bool
	}{
		"all idle":                  {[]*groupState{normal(), normal()}, []float64{0, 0.01}, []bool{false, false}},
		"one busy":                  {[]*groupState{normal(), normal()}, []float64{2, 0}, []bool{true, false}},
		"all busy":                  {[]*groupState{normal(), lowered(), normal()}, []float64{0.7, 0.6, 0.7}, []bool{true, true, true}},
		"one busy, one nearly idle": {[]*groupState{normal(), normal()}, []float64{1.6, 0.2}, []bool{true, false}},
		"one has begun":             {[]*groupState{lowered(), normal()}, []float64{0.3, 1.7}, []bool{true, true}},
		"one has ended":             {[]*groupState{lowered(), lowered()}, []float64{0, 2}, []bool{false, true}},
		"many with small shares":    {[]*groupState{lowered(), lowered(), lowered(), normal()}, []float64{0.03, 0.02, 0.01, 0.01}, []bool{true, true, true, false}},
	} {
		shares := map[*groupState]float64{}
		for i, p := range c.groups {
			shares[p] = c.shares[i]
		}
		got := groupsToLower(shares)
		for i, p := range c.groups {
			if got[p] != c.want[i] {
				t.Errorf("%s: group %d lowered: %t, want %t", name, i, got[p], c.want[i])
			}
		}
	}
}

// weightOf returns the weight of a group in the kernel, usually 100.
func weightOf(t *testing.T, g *Group) int {
	t.Helper()
	path, unit := filepath.Join(g.Dirs[unified], "cpu.weight"), usualWeight
	if g.Dirs[unified] == "" {
		path, unit = filepath.Join(g.Dirs["cpu"], "cpu.shares"), legacyWeight
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return (n*usualWeight + unit/2) / unit
}

// The weights of two groups are set in the kernel. One of them uses a processor all the time and
// then ends.
func TestBalanceSetsWeights(t *testing.T) {
	limits := engine.Limits{MemoryBytes: 256 << 20, MilliCPU: 2000}
	busy, quiet := group(t, limits), group(t, limits)
	hosttest.Need(t, hosttest.Requirement{Name: "controller that counts processor time", Has: func() bool { return busy.usageFile() != "" }})
	b := &Balance{running: true} // this test calls step itself
	b.Add(busy)
	b.Add(quiet)
	loop := exec.Command("/bin/sh", "-c", "while :; do :; done")
	if err := busy.Start(loop); err != nil {
		t.Fatal(err)
	}
	step := func(want int) {
		t.Helper()
		hosttest.Eventually(t, fmt.Sprintf("the busy group has weight %d", want), func() bool {
			if !b.step() {
				t.Fatal("the comparison stopped with two groups")
			}
			return weightOf(t, busy) == want
		})
		if got := weightOf(t, quiet); got != usualWeight {
			t.Errorf("the quiet group has weight %d", got)
		}
	}
	step(lowWeight)
	// The next server reads from the kernel which weights the previous server lowered.
	b = &Balance{running: true}
	b.Add(busy)
	b.Add(quiet)
	if err := loop.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = loop.Wait() // it was killed
	step(usualWeight)
	if err := quiet.Remove(); err != nil {
		t.Fatal(err)
	}
	if b.step() || len(b.groups) != 1 {
		t.Errorf("groups after the end of one: %v", maps.Keys(b.groups))
	}
	if _, err := quiet.cpuTime(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("processor time of a removed group: %v", err)
	}
}

// A server that moved into a group next to its sandboxes' groups has priority over them.
func TestServerHasMoreWeight(t *testing.T) {
	base := t.TempDir()
	if err := os.Mkdir(filepath.Join(base, serverGroup), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(base, serverGroup, "cpu.weight")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	raiseServerWeight(base)
	if text, err := os.ReadFile(file); err != nil || string(text) != "500" {
		t.Errorf("the weight of the server's group: got %q, %v, want 500", text, err)
	}
}
