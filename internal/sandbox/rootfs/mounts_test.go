package rootfs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// TestF3MountTargets checks that a mount cannot hide files of the template, the workspace or
// another mount, nor show under another name what the policy denies.
func TestF3MountTargets(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"usr", "home/user", "tmp", "opt"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/bin", filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	root := engine.ViewOf(dir, "", engine.Bind{Source: "/usr", Target: "/usr"})
	b := sandbox.Base{Mounts: []sandbox.Mount{{Source: "/x", Target: "/mnt/x"}}, Links: []engine.Link{{Path: "/srv/tree", Target: sandbox.WorkspaceDir}}}
	for target, free := range map[string]bool{
		"/data": true, "/home/user/x": true, "/tmp/a/b": true, "/opt/x": true, "/mnt/y": true, "/home/other/repo/.git": true,
		"/": false, "": false, "data": false, "/data/": false, "/a/../b": false, "/a\x00": false, "/home/user": false, "/tmp": false, "/opt": false,
		"/usr": false, "/usr/local/x": false, "/bin": false, "/bin/x": false, "/workspace": false, "/workspace/x": false, "/etc/x": false,
		"/proc/x": false, "/dev": false, "/.crannog/x": false, "/run/x": false, "/mnt": false, "/mnt/x": false, "/mnt/x/y": false, "/srv/tree/x": false,
	} {
		if err := checkTarget(&b, root, target); (err == nil) != free || err != nil && fault.CodeOf(err) != "mount_target_invalid" {
			t.Errorf("mount point %q: got error %v, want allowed %t", target, err, free)
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
	// A link counts as its target.
	for name, to := range map[string]string{"innocent": ".ssh", "other": "plain"} {
		if err := os.Symlink(to, filepath.Join(home, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(home, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	long := "/mnt/" + strings.Repeat("x", maxTarget)
	for _, c := range []struct{ source, target, code string }{
		{"plain", "/mnt/data", ""}, {"other", "/mnt/data", ""},
		{".ssh", "/mnt/data", "policy_denies_mount"}, {".ssh/old", "/mnt/data", "policy_denies_mount"}, {"innocent", "/mnt/data", "policy_denies_mount"},
		{"plain", "/mnt/.ssh", "policy_denies_mount"}, {"plain", "/mnt/.ssh/data", "policy_denies_mount"},
		// These would connect the sandbox to the host, or mount all of the host.
		{"pipe", "/mnt/data", "mounts_invalid"}, {"/dev/null", "/mnt/data", "mounts_invalid"}, {"/", "/mnt/data", "mounts_invalid"},
		{"none", "/mnt/data", "mounts_invalid"}, {"plain", long[:maxTarget], ""}, {"plain", long[:maxTarget+1], "mount_target_invalid"},
	} {
		source := c.source
		if !filepath.IsAbs(source) {
			source = filepath.Join(home, source)
		}
		list, err := ResolveMounts((sandbox.Settings{}), []sandbox.Mount{{Source: source, Target: c.target}})
		if err == nil {
			err = AddMounts(new(sandbox.Base), list, root, p.Files().Matcher())
		}
		if err == nil != (c.code == "") || err != nil && fault.CodeOf(err) != c.code {
			t.Errorf("%s at %.50s: got error %v, want %q", c.source, c.target, err, c.code)
		}
	}
	t.Chdir(home)
	if _, err := ResolveMounts((sandbox.Settings{}), []sandbox.Mount{{Source: "plain", Target: "/mnt/data"}}); fault.CodeOf(err) != "mounts_invalid" {
		t.Errorf("relative source: got error %v, want mounts_invalid", err)
	}
	for n, code := range map[int]string{sandbox.MaxMounts: "", sandbox.MaxMounts + 1: "mounts_invalid"} {
		if _, err := ResolveMounts((sandbox.Settings{}), slices.Repeat([]sandbox.Mount{{Source: home, Target: "/mnt/data"}}, n)); err == nil != (code == "") || err != nil && fault.CodeOf(err) != code {
			t.Errorf("%d mounts: got error %v, want %q", n, err, code)
		}
	}
}

// TestF3SharedRepositoriesAreShown checks that the repository outside of the workspace to which the
// workspace belongs is mounted only if the policy and the template allow it. Object directories
// that the repository borrows are never mounted.
func TestF3SharedRepositoriesAreShown(t *testing.T) {
	home := realDir(t)
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree := filepath.Join(home, "tree")
	for _, repo := range []string{"repo", ".ssh/repo"} {
		write(repo+"/HEAD", "ref: refs/heads/main\n")
		write(repo+"/config", "[core]\nworktree = "+tree+"\n")
		write(repo+"/refs/x", "")
		write(repo+"/objects/info/alternates", home+"/others/objects\n")
	}
	standard, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Level: "standard"}})
	if err != nil {
		t.Fatal(err)
	}
	noGit := policy.Document{Policy: "v1", Level: "standard"}
	noGit.Filesystem.Deny = []string{"**/.git", "**/.git/**"}
	without, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: noGit})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, c := range []struct {
		repo    string
		policy  *policy.Policy
		root    engine.Image
		shown   bool
		explain string
	}{
		{"repo", standard, engine.ViewOf(dir, ""), true, "uses those of " + home + "/others/objects"},
		{".ssh/repo", standard, engine.ViewOf(dir, ""), false, "the policy hides"},
		{"repo", without, engine.ViewOf(dir, ""), false, ""},
		{"repo", standard, engine.ViewOf(dir, "", engine.Bind{Source: home, Target: home}), false, "the template has"},
	} {
		write("tree/.git", "gitdir: "+filepath.Join(home, c.repo)+"\n")
		var b sandbox.Base
		AddRepository(&b, tree, c.root, c.policy.Files().Matcher())
		if shown := b.Git != nil && len(b.Mounts) == 1 && b.Mounts[0].Source == filepath.Join(home, c.repo); shown != c.shown || !shown && (b.Git != nil || len(b.Mounts) > 0) {
			t.Errorf("repository %s: got %+v, want mounted %t", c.repo, b, c.shown)
		}
		if text := strings.Join(b.Notes, "\n"); !strings.Contains(text, c.explain) || c.explain == "" && text != "" {
			t.Errorf("notes about %s: got %q, want %q", c.repo, text, c.explain)
		}
	}
}
