package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
)

func TestTreeOfVersion1(t *testing.T) {
	tree := &Tree{legacy: map[string]string{"memory": "/sys/fs/cgroup/memory/crannog", "cpu": "/sys/fs/cgroup/cpu/crannog"}}
	if tree.Version() != 1 || !strings.Contains(tree.String(), "version 1") || !strings.Contains(tree.String(), "/sys/fs/cgroup/memory/crannog") {
		t.Errorf("the tree is of version %d: %s; want 1", tree.Version(), tree)
	}
	if got := tree.Enforces(); !slices.Equal(got, []engine.Limit{engine.LimitMemory, engine.LimitCPU}) {
		t.Errorf("both controllers: %v", got)
	}
	if got := (&Tree{legacy: map[string]string{"cpu": "/c"}}).Enforces(); !slices.Equal(got, []engine.Limit{engine.LimitCPU}) {
		t.Errorf("only cpu: %v", got)
	}
	var none *Tree
	if got := none.Enforces(); got != nil {
		t.Errorf("no tree: %v", got)
	}
	if tree := (&Tree{unified: "/u"}); tree.Version() != 2 || !strings.Contains(tree.String(), "version 2, below /u") {
		t.Errorf("the tree is of version %d: %s; want 2", tree.Version(), tree)
	}
}

// A group has one directory for each place, also where two controllers share one, and none is left
// of a group whose limits could not be set.
func TestCreateVersion1(t *testing.T) {
	acct, freezes, memory := t.TempDir(), t.TempDir(), t.TempDir()
	tree := &Tree{legacy: map[string]string{"cpuacct": acct, "other": acct}, freezer: freezes}
	g, err := tree.CreateFor("box", limits, 100)
	if err != nil {
		t.Fatal(err)
	}
	if g.Dirs["cpuacct"] != filepath.Join(acct, "box") || g.Dirs["other"] != g.Dirs["cpuacct"] || g.Dirs[freezer] != filepath.Join(freezes, "box") {
		t.Errorf("the group has the directories %v, want one shared by cpuacct and other, and one for the freezer", g.Dirs)
	}
	if _, err := tree.CreateFor("box", limits, 100); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second group of the same sandbox: %v", err)
	}
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	// Create is for engines that do not freeze groups.
	if g, err = tree.Create("box", limits); err != nil || g.Dirs[freezer] != "" {
		t.Errorf("Create returned %v, %v; want a group without a freezer", g, err)
	}
	if err := tree.RemoveNamed("box"); err != nil {
		t.Fatal(err)
	}
	tree.legacy["memory"] = memory // the kernel would make files there
	if _, err := tree.CreateFor("box", limits, 100); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file of a limit: %v", err)
	}
	for _, parent := range []string{acct, freezes, memory} {
		if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
			t.Errorf("%v is left: %v", left, err)
		}
	}
}

func TestSettingsOfVersion1(t *testing.T) {
	for controller, want := range map[string][][2]string{
		"memory": {{"memory.limit_in_bytes", "536870912"}, {"?memory.memsw.limit_in_bytes", "536870912"}},
		"cpu":    {{"cpu.cfs_period_us", "100000"}, {"cpu.cfs_quota_us", "150000"}},
		"pids":   {{"pids.max", "7"}}, "cpuacct": nil,
	} {
		if got := legacySettings(controller, limits, 7); !slices.Equal(got, want) {
			t.Errorf("the settings of %s are %v, want %v", controller, got, want)
		}
	}
}

func TestUsageOfVersion1(t *testing.T) {
	dir := groupDir(t, map[string]string{
		"memory.usage_in_bytes": "1000\n", "memory.stat": "cache 1\ntotal_inactive_file 400\n", "memory.limit_in_bytes": "536870912\n",
		"memory.oom_control": "oom_kill_disable 0\noom_kill 3\n", "cpuacct.usage": "5000\n", "cpu.shares": "1024",
		"cpu.cfs_quota_us": "150001\n", "cpu.cfs_period_us": "100000\n",
	})
	g := &Group{Dirs: map[string]string{"memory": dir, "cpu": dir, "cpuacct": dir}}
	if u := g.Usage(); u.MemoryBytes != 600 || u.MemoryCache != 400 || u.CPUTime != 5*time.Microsecond {
		t.Errorf("the usage is %+v, want 600 bytes, 400 of cache and 5 µs", u)
	}
	if n := g.OOMKills(); n != 3 {
		t.Errorf("OOMKills returned %d, want 3", n)
	}
	// A part of a thousandth is rounded up, so that a limit is never shown as stricter than it is.
	if l := g.Bounds(); l.MemoryBytes != 512<<20 || l.MilliCPU != 1501 {
		t.Errorf("the limits are %+v, want 512 MiB and 1501 thousandths of a processor", l)
	}
	if g.yields() {
		t.Error("the usual weight is the low one")
	}
	if err := errors.Join(os.Truncate(filepath.Join(dir, "cpu.shares"), 0), g.Yield(true)); err != nil || !g.yields() {
		t.Errorf("the weight is not low: %v", err)
	}
	wantText(t, filepath.Join(dir, "cpu.shares"), "102")
}

func TestBoundsOfVersion2(t *testing.T) {
	for text, want := range map[string]int64{"150000 100000\n": 1500, "max 100000\n": 0, "": 0, "1 100000\n": 1} {
		g := &Group{Dirs: map[string]string{unified: groupDir(t, map[string]string{"memory.max": "4096\n", "cpu.max": text})}}
		if l := g.Bounds(); l.MilliCPU != want || l.MemoryBytes != 4096 {
			t.Errorf("cpu.max contains %q: Bounds returned %+v, want %d", text, l, want)
		}
	}
}

// Without a group nothing is counted, and nothing fails.
func TestUsageWithoutGroup(t *testing.T) {
	g := &Group{}
	if g.OOMKills() != 0 || g.Bounds() != (engine.Limits{}) || g.usageFile() != "" {
		t.Errorf("an empty group has %d kills, the limits %+v and the file %q, want none", g.OOMKills(), g.Bounds(), g.usageFile())
	}
	if err := g.Yield(true); err != nil {
		t.Error(err)
	}
	if u := g.Usage(); u.MemoryBytes != 0 || u.CPUTime != 0 {
		t.Errorf("the usage of an empty group is %+v, want zero", u)
	}
}
