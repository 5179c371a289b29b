package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/causeway/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// TestF3PlacesOfMounts: no mount hides what the template, the workspace or another mount
// shows, and none shows under another name what the policy denies.
func TestF3PlacesOfMounts(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"usr", "home/user", "tmp", "opt"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/bin", filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	root := engine.Root{Dir: dir, Binds: []engine.Bind{{Source: "/usr", Target: "/usr"}}}
	b := Base{Mounts: []Mount{{Source: "/x", Target: "/mnt/x"}}, Links: []engine.Link{{Path: "/srv/tree", Target: workspaceDir}}}
	for target, free := range map[string]bool{
		"/data": true, "/home/user/x": true, "/tmp/a/b": true, "/opt/x": true, "/mnt/y": true, "/home/other/repo/.git": true,
		"/": false, "": false, "data": false, "/data/": false, "/a/../b": false, "/a\x00": false, "/home/user": false, "/tmp": false, "/opt": false,
		"/usr": false, "/usr/local/x": false, "/bin": false, "/bin/x": false, "/workspace": false, "/workspace/x": false, "/etc/x": false,
		"/proc/x": false, "/dev": false, "/.crannog/x": false, "/run/x": false, "/mnt": false, "/mnt/x": false, "/mnt/x/y": false, "/srv/tree/x": false,
	} {
		if err := b.free(root, target); (err == nil) != free || err != nil && fault.CodeOf(err) != "mount_target_invalid" {
			t.Errorf("%q: %v", target, err)
		}
	}
	p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Level: "standard"}})
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	for _, d := range []string{".ssh/old", "plain"} {
		if err := os.MkdirAll(filepath.Join(home, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for source, code := range map[string]string{"plain": "", ".ssh": "policy_denies_mount", ".ssh/old": "policy_denies_mount"} {
		list, err := (Settings{}).resolveMounts([]Mount{{Source: filepath.Join(home, source), Target: "/mnt/data"}})
		if err == nil {
			err = new(Base).mountAll(list, root, p.Files().Matcher())
		}
		if fault.CodeOf(err) != code && (err != nil || code != "") {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// TestF3WhatComesOutOfASharedRepository: a sandbox in one work tree changes nothing of
// another, and nothing of how git reads objects.
func TestF3WhatComesOutOfASharedRepository(t *testing.T) {
	tree, sub := &Shared{Worktree: "one"}, &Shared{}
	for name, want := range map[string][2]bool{
		"refs": {true, true}, "refs/heads/x": {true, true}, "packed-refs": {true, true}, "logs/refs/heads/x": {true, true},
		"objects": {true, true}, "objects/ab": {true, true}, "objects/pack": {true, true}, "config": {true, true}, "hooks/pre-commit": {true, true},
		"objects/ab/0123456789abcdef0123456789abcdef012345": {true, true}, "objects/pack/pack-0123456789abcdef0123456789abcdef01234567.pack": {true, true},
		"objects/ab/x": {false, false}, "objects/info/alternates": {false, false}, "objects/pack/multi-pack-index": {false, false},
		"HEAD": {false, true}, "index": {false, true}, "logs/HEAD": {false, true}, "refs/bisect/bad": {false, true}, "ORIG_HEAD": {false, true},
		"worktrees/one/HEAD": {true, false}, "worktrees/one/index": {true, false}, "worktrees/one/gitdir": {false, false}, "worktrees/one": {false, false},
		"worktrees/two/HEAD": {false, false}, "worktrees/one/commondir": {false, false}, "modules/x/config": {false, false}, "worktrees/onex/HEAD": {false, false},
	} {
		if got := [2]bool{tree.comesOut(name), sub.comesOut(name)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
