package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

var limits = engine.Limits{MemoryBytes: 512 << 20, MilliCPU: 1500}

func TestParseMounts(t *testing.T) {
	const table = `24 30 0:22 / /proc rw,nosuid - proc proc rw
31 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw
`
	v2, v1 := parseMounts(strings.NewReader(table))
	if v2 != "/sys/fs/cgroup" || len(v1) != 0 {
		t.Errorf("version 2: %q %v", v2, v1)
	}
	const legacy = `33 32 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
34 32 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
35 32 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
short line
`
	v2, v1 = parseMounts(strings.NewReader(legacy))
	if v2 != "/sys/fs/cgroup/unified" || v1["cpu"] != v1["cpuacct"] || v1["memory"] != "/sys/fs/cgroup/memory" {
		t.Errorf("hybrid: %q %v", v2, v1)
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add("31 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	f.Add(" - \n- - -")
	f.Fuzz(func(t *testing.T, table string) { parseMounts(strings.NewReader(table)) })
}

func TestOwnUnified(t *testing.T) {
	for text, want := range map[string]string{
		"0::/user.slice/a.scope\n":            "/user.slice/a.scope",
		"9:memory:/x\n0::/\n":                 "/",
		"9:memory:/x\n":                       "/",
		"1:name=systemd:/\n0::/init.scope\nx": "/init.scope",
	} {
		if got := ownUnified(text); got != want {
			t.Errorf("the group in %q is %q, want %q", text, got, want)
		}
	}
}

// hierarchy is a directory that stands for a mounted version 2 hierarchy. The kernel would create a
// group's files with its directory, so the test creates them.
func hierarchy(t *testing.T, controllers string) string {
	t.Helper()
	dir := t.TempDir()
	createFiles(t, dir, controllers)
	return dir
}

func createFiles(t *testing.T, dir, controllers string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cgroup.subtree_control", "memory.max", "memory.swap.max", "cpu.max", "pids.max", "cgroup.procs"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte(controllers), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestUnifiedNeedsMemoryAndCPU(t *testing.T) {
	top := hierarchy(t, "cpuset io pids")
	if _, err := detectUnified(top, "/"); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("a hierarchy without memory and cpu: got %v, want an error that names memory", err)
	}
}

// A delegated subtree is used if the root group is not writable.
func TestUnifiedFindsDelegatedSubtree(t *testing.T) {
	top := hierarchy(t, "")
	own := "/user.slice/user-1000.slice/user@1000.service/app.scope"
	createFiles(t, filepath.Join(top, filepath.Dir(own)), "cpu memory pids")
	createFiles(t, filepath.Join(top, filepath.Dir(own), parentName), "cpu memory pids")
	tree, err := detectUnified(top, own)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(top, filepath.Dir(own), parentName); tree.unified != want || tree.Version() != 2 {
		t.Errorf("groups are created in %q, want %q", tree.unified, want)
	}
	if !slices.Contains(tree.Enforces(), engine.LimitMemory) || !slices.Contains(tree.Enforces(), engine.LimitCPU) {
		t.Errorf("enforces %v", tree.Enforces())
	}
}

func TestUnifiedSettings(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "box")
	createFiles(t, dir, "")
	err := writeAll(dir, unifiedSettings(limits, hostPIDs))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"memory.max": "536870912", "cpu.max": "150000 100000", "memory.swap.max": "0"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s contains %q, %v; want %q", name, got, err, want)
		}
	}
	if err := os.Remove(filepath.Join(dir, "memory.max")); err != nil {
		t.Fatal(err)
	}
	if err := writeAll(dir, unifiedSettings(limits, hostPIDs)); err == nil {
		t.Error("a limit that cannot be set causes no error")
	}
}

// If the kernel does not store a limit, nothing starts.
func TestLimitsAreReadBack(t *testing.T) {
	for _, c := range []struct{ name, requested, actual string }{
		{"memory.max", "536870912", "536870912\n"}, {"memory.limit_in_bytes", "536870913", "536870912\n"}, {"cpu.max", "150000 100000", "150000 100000\n"},
	} {
		if !isWithin(c.name, c.requested, strings.TrimSpace(c.actual)) {
			t.Errorf("%s: %q for %q is not accepted", c.name, c.actual, c.requested)
		}
	}
	for _, c := range []struct{ name, requested, actual string }{
		{"memory.max", "536870912", "max"}, {"memory.limit_in_bytes", "536870912", "9223372036854771712"}, {"memory.limit_in_bytes", "536870912", "-1"},
		{"memory.max", "536870912", ""}, {"cpu.max", "150000 100000", "max 100000"}, {"cpu.max", "150000 100000", "150000 50000"},
		{"cpu.cfs_period_us", "100000", "50000"}, {"cpu.cfs_quota_us", "150000", "-1"}, {"pids.max", "16384", "max"},
	} {
		if isWithin(c.name, c.requested, c.actual) {
			t.Errorf("%s: %q for %q is accepted", c.name, c.actual, c.requested)
		}
	}
	for _, name := range []string{"memory.max", "cpu.max", "pids.max"} {
		dir := filepath.Join(t.TempDir(), "box")
		createFiles(t, dir, "")
		if err := applyLimits(dir, unifiedSettings(limits, hostPIDs)); err != nil {
			t.Fatal(err)
		}
		// This file accepts all writes and stores nothing.
		if err := errors.Join(os.Remove(filepath.Join(dir, name)), os.Symlink(os.DevNull, filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
		if err := applyLimits(dir, unifiedSettings(limits, hostPIDs)); fault.CodeOf(err) != "policy_not_effective" || !strings.Contains(fault.PublicText(err), name) {
			t.Errorf("a kernel that does not store %s: got %v, want policy_not_effective", name, err)
		}
	}
}

func TestOOMKillsAndUsage(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"memory.events": "low 0\noom 2\noom_kill 3\n", "memory.current": "1000\n",
		"memory.stat": "anon 1\ninactive_file 400\n", "cpu.stat": "usage_usec 5\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	g := Group{Dirs: map[string]string{unified: dir}}
	if n := g.OOMKills(); n != 3 {
		t.Errorf("OOMKills returned %d, want 3", n)
	}
	if u := g.Usage(); u.MemoryBytes != 600 || u.MemoryCache != 400 || u.CPUTime != 5000 {
		t.Errorf("the usage is %+v, want 600 bytes, 400 of cache and 5 µs", u)
	}
}

func TestRemoveOfMissingGroup(t *testing.T) {
	g := Group{Dirs: map[string]string{unified: filepath.Join(t.TempDir(), "gone")}}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}
