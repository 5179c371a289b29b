package cgroup

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// groupDir returns a directory that stands for a control group, with the files that the kernel
// would create in it. Hosts have one version of control groups, and these tests cover both.
func groupDir(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// wantText fails unless a file has this text.
func wantText(t *testing.T, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		t.Errorf("%s contains %q, %v; want %q", filepath.Base(path), text, err, want)
	}
}

func TestFreezeVersion1(t *testing.T) {
	dir := groupDir(t, map[string]string{"freezer.state": "THAWED"})
	g := &Group{Dirs: map[string]string{freezer: dir}}
	for _, stop := range []bool{true, false} {
		if err := g.Freeze(stop); err != nil {
			t.Fatal(err)
		}
		wantText(t, filepath.Join(dir, "freezer.state"), map[bool]string{true: "FROZEN", false: "THAWED"}[stop])
		if frozen, err := g.Frozen(); err != nil || frozen != stop {
			t.Errorf("frozen: %t %v, want %t", frozen, err, stop)
		}
	}
}

// In version 2 the kernel reports in another file when all processes are stopped.
func TestFreezeVersion2(t *testing.T) {
	dir := groupDir(t, map[string]string{"cgroup.freeze": "0", "cgroup.events": "populated 1\nfrozen 1\n"})
	g := &Group{Dirs: map[string]string{unified: dir}}
	if err := g.Freeze(true); err != nil {
		t.Fatal(err)
	}
	wantText(t, filepath.Join(dir, "cgroup.freeze"), "1")
	if err := os.WriteFile(filepath.Join(dir, "cgroup.events"), []byte("populated 1\nfrozen 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.Freeze(false); err != nil {
		t.Fatal(err)
	}
	wantText(t, filepath.Join(dir, "cgroup.freeze"), "0")
	if frozen, err := g.Frozen(); err != nil || frozen {
		t.Errorf("frozen: %t %v", frozen, err)
	}
}

// A group that cannot be frozen is an error, because the caller would read memory while processes
// write. A group that no longer exists has nothing to thaw.
func TestFreezeWithoutFreezer(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	for name, g := range map[string]*Group{
		"no group": nil, "no directory": {}, "only a memory limit": {Dirs: map[string]string{"memory": gone}},
		"version 1, gone": {Dirs: map[string]string{freezer: gone}}, "version 2, gone": {Dirs: map[string]string{unified: gone}},
	} {
		if err := g.Freeze(true); err == nil {
			t.Errorf("%s: it was frozen", name)
		}
		if err := g.Freeze(false); err != nil {
			t.Errorf("%s: thaw: %v", name, err)
		}
	}
	if _, err := (&Group{Dirs: map[string]string{freezer: gone}}).Frozen(); err == nil {
		t.Error("a missing group has a state")
	}
}

func TestTreeFreezes(t *testing.T) {
	var none *Tree
	if none.Freezes() || (&Tree{legacy: map[string]string{"memory": "/m"}}).Freezes() {
		t.Error("groups without a freezer can be frozen")
	}
	if !(&Tree{unified: "/u"}).Freezes() || !(&Tree{freezer: "/f"}).Freezes() {
		t.Error("groups with a freezer cannot be frozen")
	}
}

func TestGroupShown(t *testing.T) {
	var none *Group
	for name, c := range map[string]struct {
		group *Group
		want  map[string]string
	}{
		"none":      {none, nil},
		"version 2": {&Group{Dirs: map[string]string{unified: "/u"}}, map[string]string{"": "/u"}},
		"version 1": {
			&Group{Dirs: map[string]string{"memory": "/m", "cpu": "/c", "cpuacct": "/c", freezer: "/f", "pids": ""}},
			map[string]string{"memory": "/m", "cpu": "/c", "cpuacct": "/c"},
		},
	} {
		if got := c.group.Shown(); !maps.Equal(got, c.want) {
			t.Errorf("%s: Shown returned %v, want %v", name, got, c.want)
		}
	}
}

// The kernel writes to the descriptor that it was given when the group has no memory left.
func TestOnOOM(t *testing.T) {
	dir := groupDir(t, map[string]string{"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", "cgroup.event_control": ""})
	g := &Group{Dirs: map[string]string{"memory": dir}}
	hit := make(chan struct{}, 2)
	stop, err := g.OnOOM(func() { hit <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.event_control"))
	if err != nil {
		t.Fatal(err)
	}
	var events, control int
	if _, err := fmt.Sscanf(string(text), "%d %d", &events, &control); err != nil {
		t.Fatalf("cgroup.event_control contains %q: %v", text, err)
	}
	if len(hit) != 0 {
		t.Error("there was an event before the kernel sent one")
	}
	if _, err := unix.Write(events, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, hit)
}

// The kernel may have killed a process before the server registered for events.
func TestOnOOMBeforeRegistration(t *testing.T) {
	dir := groupDir(t, map[string]string{"memory.oom_control": "oom_kill 1\n", "cgroup.event_control": ""})
	hit := make(chan struct{}, 2)
	stop, err := (&Group{Dirs: map[string]string{"memory": dir}}).OnOOM(func() { hit <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	awaitEvent(t, hit)
}

func TestOnOOMWithoutEvents(t *testing.T) {
	hit := func() { t.Error("an event that no kernel sent") }
	stop, err := (&Group{Dirs: map[string]string{unified: t.TempDir()}}).OnOOM(hit)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	for name, texts := range map[string]map[string]string{
		"no memory.oom_control": {}, "no cgroup.event_control": {"memory.oom_control": "oom_kill 0\n"},
	} {
		g := &Group{Dirs: map[string]string{"memory": groupDir(t, texts)}}
		if _, err := g.OnOOM(hit); err == nil || !strings.Contains(err.Error(), "cgroup") {
			t.Errorf("%s: OnOOM returned %v, want an error about the group", name, err)
		}
	}
}

func awaitEvent(t *testing.T, hit <-chan struct{}) {
	t.Helper()
	select {
	case <-hit:
	case <-hosttest.Late():
		t.Fatal("no event")
	}
}
