package rootfs

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// hiding returns a policy that hides files named "hidden".
func hiding(t *testing.T, f policy.Filesystem) *policy.Policy {
	t.Helper()
	f.Deny = append(f.Deny, "**/hidden")
	p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Level: "light", Filesystem: f}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// newRepository creates a repository that tracks a hidden file and a visible one.
func newRepository(t *testing.T, dir string) {
	t.Helper()
	hosttest.Need(t, hosttest.Git)
	if err := os.MkdirAll(filepath.Join(dir, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hidden", "src/hidden", "visible"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	hosttest.RunGit(t, dir, "init", "-q", "-b", "main")
	hosttest.RunGit(t, dir, "add", ".")
	hosttest.RunGit(t, dir, "commit", "-qm", "first")
}

// realDir returns a temporary directory without links in its path.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// baseOf returns an instance that shows the repository of a workspace.
func baseOf(t *testing.T, workspace string, p *policy.Policy) sandbox.Base {
	t.Helper()
	var b sandbox.Base
	AddRepository(&b, workspace, engine.ViewOf(t.TempDir(), ""), p.Files().Matcher())
	return b
}

// A policy decides about repositories that track hidden files: the sandbox does not start, starts
// without the repositories, or starts with them, and the guest marks the files in their indexes.
func TestTrackedHiddenFiles(t *testing.T) {
	dir := realDir(t)
	newRepository(t, dir)
	newRepository(t, filepath.Join(dir, "nested"))
	hosttest.RunGit(t, dir, "rm", "-rq", "--cached", "--ignore-unmatch", "nested")
	plain := filepath.Join(dir, "plain")
	if err := os.Mkdir(plain, 0o755); err != nil {
		t.Fatal(err)
	}
	hosttest.RunGit(t, plain, "init", "-q")

	_, err := pathMasks(dir, sandbox.Base{}, hiding(t, policy.Filesystem{Tracked: policy.TrackedDeny}))
	if fault.CodeOf(err) != "policy_hides_tracked" || !strings.Contains(fault.PublicText(err), "/workspace: hidden, src/hidden") || fault.HintOf(err) == "" {
		t.Errorf("tracked: deny: got error %v, want one that names the files and has a hint", err)
	}

	masks, err := pathMasks(dir, sandbox.Base{}, hiding(t, policy.Filesystem{Tracked: policy.TrackedAllow}))
	if err != nil {
		t.Fatal(err)
	}
	if len(masks.repos) != 2 {
		t.Fatalf("tracked: allow: got repositories %+v, want two", masks.repos)
	}
	for i, top := range []string{"/workspace", "/workspace/nested"} {
		r := masks.repos[i]
		slices.Sort(r.Hidden)
		if r.Top != top || r.Index != top+"/.git/index" || r.Tracked != 2 || r.Without || !slices.Equal(r.Names, []string{"hidden", "src/hidden"}) || !slices.Equal(r.Hidden, r.Names) {
			t.Errorf("tracked: allow: got repository %+v, want the two hidden files of %s", r, top)
		}
	}
	if marks := masks.skips(); len(marks) != 2 || marks[0].Index != "/workspace/.git/index" || len(marks[0].Paths) != 2 {
		t.Errorf("tracked: allow: got marks %v, want two files in two indexes", marks)
	}
	masks.readOnly = []string{sandbox.WorkspaceDir}
	if marks := masks.skips(); len(marks) != 0 {
		t.Errorf("marks in read-only indexes: got %v, want none", marks)
	}

	masks, err = pathMasks(dir, sandbox.Base{}, hiding(t, policy.Filesystem{Tracked: policy.TrackedHide}))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/workspace/.git", "/workspace/nested/.git"} {
		if !slices.Contains(masks.absent, name) {
			t.Errorf("tracked: hide: got hidden paths %q, want also %s", masks.absent, name)
		}
	}
	if slices.Contains(masks.absent, "/workspace/plain/.git") || len(masks.skips()) != 0 || len(masks.repos) != 2 || !masks.repos[0].Without {
		t.Errorf("tracked: hide: got hidden paths %q and repositories %+v", masks.absent, masks.repos)
	}
}

// The repository of a linked work tree lies outside of the workspace, or elsewhere in it.
func TestTrackedHiddenFilesOfWorkTree(t *testing.T) {
	home := realDir(t)
	main, tree := filepath.Join(home, "main"), filepath.Join(home, "tree")
	newRepository(t, main)
	hosttest.RunGit(t, main, "worktree", "add", "-q", tree)

	allow := hiding(t, policy.Filesystem{Tracked: policy.TrackedAllow})
	b := baseOf(t, tree, allow)
	if b.Git == nil || b.Git.Worktree != "tree" {
		t.Fatalf("the shared repository is %+v, want that of the work tree", b.Git)
	}
	masks, err := pathMasks(tree, b, allow)
	if err != nil {
		t.Fatal(err)
	}
	if want := main + "/.git/worktrees/tree/index"; len(masks.repos) != 1 || masks.repos[0].Index != want || masks.repos[0].Tracked != 2 {
		t.Errorf("tracked: allow: got repositories %+v, want the index %s", masks.repos, want)
	}
	hide := hiding(t, policy.Filesystem{Tracked: policy.TrackedHide})
	masks, err = pathMasks(tree, b, hide)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/workspace/.git", main + "/.git"} {
		if !slices.Contains(masks.absent, name) {
			t.Errorf("tracked: hide: got hidden paths %q, want also %s", masks.absent, name)
		}
	}

	// Both in the workspace: hiding the .git of a work tree would not hide the history.
	masks, err = pathMasks(home, baseOf(t, home, hide), hide)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/workspace/main/.git", "/workspace/tree/.git"} {
		if !slices.Contains(masks.absent, name) {
			t.Errorf("tracked: hide, both in the workspace: got hidden paths %q, want also %s", masks.absent, name)
		}
	}
}

// The repository of a submodule is in that of its work tree.
func TestTrackedHiddenFilesOfSubmodule(t *testing.T) {
	home := realDir(t)
	main, tree, library := filepath.Join(home, "main"), filepath.Join(home, "tree"), filepath.Join(home, "library")
	newRepository(t, library)
	newRepository(t, main)
	hosttest.RunGit(t, main, "rm", "-q", "hidden", "src/hidden")
	hosttest.RunGit(t, main, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library, "lib")
	hosttest.RunGit(t, main, "commit", "-qm", "with a submodule")
	hosttest.RunGit(t, main, "worktree", "add", "-q", tree)
	hosttest.RunGit(t, tree, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")

	allow := hiding(t, policy.Filesystem{Tracked: policy.TrackedAllow})
	b := baseOf(t, tree, allow)
	masks, err := pathMasks(tree, b, allow)
	if err != nil {
		t.Fatal(err)
	}
	want := main + "/.git/worktrees/tree/modules/lib/index"
	if len(masks.repos) != 1 || masks.repos[0].Top != "/workspace/lib" || masks.repos[0].Index != want {
		t.Fatalf("tracked: allow: got repositories %+v, want the index %s", masks.repos, want)
	}
	marks, wantMarks := masks.skips(), []guest.Skip{{Index: want, Paths: [][]byte{[]byte("hidden"), []byte("src/hidden")}}}
	if !reflect.DeepEqual(marks, wantMarks) {
		t.Errorf("got marks %q, want %q", marks, wantMarks)
	}
	masks, err = pathMasks(tree, b, hiding(t, policy.Filesystem{Tracked: policy.TrackedHide}))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/workspace/lib/.git", filepath.Dir(want)} {
		if !slices.Contains(masks.absent, name) {
			t.Errorf("tracked: hide: got hidden paths %q, want also %s", masks.absent, name)
		}
	}

	// The main work tree has the submodule's repository in its own .git.
	masks, err = pathMasks(main, baseOf(t, main, allow), allow)
	if err != nil {
		t.Fatal(err)
	}
	if len(masks.repos) != 1 || masks.repos[0].Index != "/workspace/.git/modules/lib/index" {
		t.Errorf("main work tree: got repositories %+v, want that of the submodule", masks.repos)
	}
}

// A policy applies to mounts as to the workspace. In a shared repository that is bare, other work
// trees are hidden.
func TestMountsAreMasked(t *testing.T) {
	data, file := realDir(t), filepath.Join(realDir(t), "file")
	newRepository(t, data)
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b := sandbox.Base{Mounts: []sandbox.Mount{{Source: data, Target: "/mnt/data"}, {Source: file, Target: "/mnt/file", ReadOnly: true}}}
	masks, err := pathMasks("", b, hiding(t, policy.Filesystem{Tracked: policy.TrackedAllow}))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(masks.absent)
	if !slices.Equal(masks.absent, []string{"/mnt/data/hidden", "/mnt/data/src/hidden"}) || !slices.Equal(masks.readOnly, []string{"/mnt/file"}) {
		t.Errorf("got hidden paths %q and read-only ones %q", masks.absent, masks.readOnly)
	}
	if len(masks.repos) != 1 || masks.repos[0].Top != "/mnt/data" || masks.repos[0].Tracked != 2 {
		t.Errorf("got repositories %+v, want that of the mount", masks.repos)
	}
	no := false
	masks, err = pathMasks("", b, hiding(t, policy.Filesystem{Tracked: policy.TrackedHide, Workspace: policy.Workspace{Writable: &no}}))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(masks.absent, "/mnt/data/.git") || !slices.Equal(masks.readOnly, []string{"/mnt/data", "/mnt/file"}) {
		t.Errorf("read-only: got hidden paths %q and read-only ones %q", masks.absent, masks.readOnly)
	}
	copies := hiding(t, policy.Filesystem{Tracked: policy.TrackedAllow, Workspace: policy.Workspace{Mode: workspaceCopy}})
	if _, err := pathMasks("", b, copies); fault.CodeOf(err) != "mount_file_copied" {
		t.Errorf("a file where directories are copied: got error %v, want mount_file_copied", err)
	}
	b.Mounts[0].Source = filepath.Join(data, "none")
	if _, err := pathMasks("", b, hiding(t, policy.Filesystem{})); fault.CodeOf(err) != "mounts_invalid" {
		t.Errorf("a missing source: got error %v, want mounts_invalid", err)
	}
}

func TestOtherWorkTreesAreHidden(t *testing.T) {
	home := realDir(t)
	first, bare, one := filepath.Join(home, "first"), filepath.Join(home, "bare"), filepath.Join(home, "bare", "one")
	newRepository(t, first)
	hosttest.RunGit(t, home, "clone", "-q", "--bare", first, bare)
	hosttest.RunGit(t, bare, "worktree", "add", "-q", one)
	hosttest.RunGit(t, bare, "worktree", "add", "-q", filepath.Join(bare, "two"))
	allow := hiding(t, policy.Filesystem{Tracked: policy.TrackedAllow})
	b := baseOf(t, one, allow)
	if b.Git == nil || b.Git.Source != bare {
		t.Fatalf("the shared repository is %+v, want %s", b.Git, bare)
	}
	masks, err := pathMasks(one, b, allow)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		if !slices.Contains(masks.hide, bare+"/"+name) {
			t.Errorf("got hidden paths %q, want also the work tree %s", masks.hide, name)
		}
	}
	if slices.Contains(masks.hide, bare+"/objects") || slices.Contains(masks.hide, bare+"/worktrees") {
		t.Errorf("parts of the repository are hidden: %q", masks.hide)
	}
	outside := outsideRepository(b, b.Git.Target)
	for name, want := range map[string]bool{"/two": true, "/one": true, "/objects/ab": false, "/HEAD": false, "/worktrees/two/modules": true, "/worktrees/one/modules": false, "/none": true} {
		if got := outside(name); got != want {
			t.Errorf("%s is outside of the repository: got %t, want %t", name, got, want)
		}
	}
}
