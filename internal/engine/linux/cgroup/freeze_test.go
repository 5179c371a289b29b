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

// files returns a directory that stands for a control group, with the files that the kernel would
// make in it. Hosts have one version of control groups, and these tests cover both.
func files(t *testing.T, texts map[string]string) string {
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
		t.Errorf("%s: %q %v, want %q", filepath.Base(path), text, err, want)
	}
}

func TestFreezeVersion1(t *testing.T) {
	dir := files(t, map[string]string{"freezer.state": "THAWED"})
	g := &Group{Dirs: map[string]string{freezer: dir}}
	for _, stop := range []bool{true, false} {
		if err := g.Freeze(stop); err != nil {
			t.Fatal(err)
		}
		wantText(t, filepath.Join(dir, "freezer.state"), map[bool]string{true: "FROZEN", false: "THAWED"}[stop])
		if is, err := g.Frozen(); err != nil || is != stop {
			t.Errorf("frozen: %t %v, want %t", is, err, stop)
		}
	}
}

// In version 2 the kernel reports in another file when all processes stand still.
func TestFreezeVersion2(t *testing.T) {
	dir := files(t, map[string]string{"cgroup.freeze": "0", "cgroup.events": "populated 1\nfrozen 1\n"})
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
	if is, err := g.Frozen(); err != nil || is {
		t.Errorf("frozen: %t %v", is, err)
	}
}

// A caller that believes a group to be frozen reads its memory while its processes write, so a
// group that cannot be frozen is an error. One that is gone has nothing to thaw.
func TestFreezeWithoutAFreezer(t *testing.T) {
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
		t.Error("a group that is gone has a state")
	}
}

func TestFreezes(t *testing.T) {
	var none *Tree
	if none.Freezes() || (&Tree{legacy: map[string]string{"memory": "/m"}}).Freezes() {
		t.Error("groups without a freezer can be stopped")
	}
	if !(&Tree{unified: "/u"}).Freezes() || !(&Tree{freezer: "/f"}).Freezes() {
		t.Error("groups with a freezer cannot be stopped")
	}
}

func TestShown(t *testing.T) {
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
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The kernel writes to the descriptor that it was given when the group has no memory left.
func TestOnOOM(t *testing.T) {
	dir := files(t, map[string]string{"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", "cgroup.event_control": ""})
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
		t.Fatalf("%q: %v", text, err)
	}
	if len(hit) != 0 {
		t.Error("there was an event before the kernel sent one")
	}
	if _, err := unix.Write(events, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	wait(t, hit)
}

// The kernel may have ended a process before the server could ask for events.
func TestOnOOMThatWas(t *testing.T) {
	dir := files(t, map[string]string{"memory.oom_control": "oom_kill 1\n", "cgroup.event_control": ""})
	hit := make(chan struct{}, 2)
	stop, err := (&Group{Dirs: map[string]string{"memory": dir}}).OnOOM(func() { hit <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	wait(t, hit)
}

func TestOnOOMWithoutEvents(t *testing.T) {
	hit := func() { t.Error("an event without a kernel") }
	stop, err := (&Group{Dirs: map[string]string{unified: t.TempDir()}}).OnOOM(hit)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	for name, texts := range map[string]map[string]string{
		"no file of the memory": {}, "no file for events": {"memory.oom_control": "oom_kill 0\n"},
	} {
		g := &Group{Dirs: map[string]string{"memory": files(t, texts)}}
		if _, err := g.OnOOM(hit); err == nil || !strings.Contains(err.Error(), "cgroup") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func wait(t *testing.T, hit <-chan struct{}) {
	t.Helper()
	select {
	case <-hit:
	case <-hosttest.Late():
		t.Fatal("no event")
	}
}
