package lifecycle_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// emptyTemplates has a template whose image is an empty directory, so that mounts are possible at
// all paths of this host.
type emptyTemplates struct {
	templates
	dir string
}

func (e emptyTemplates) Resolve(ctx context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	t, err := e.templates.Resolve(ctx, ref)
	t.Image = engine.ViewOf(e.dir, "")
	return t, err
}

// hidesAndProtects hides files named "hidden", and protects those named "protected".
var hidesAndProtects = sandbox.Access{Level: "light", Net: sandbox.NetNone, Documents: []policy.Document{{Policy: "v1", Filesystem: policy.Filesystem{
	Deny: []string{"**/hidden"}, Protect: []string{"**/protected"}, Tracked: policy.TrackedAllow,
}}}}

// gitRig is a sandbox whose workspace is a git repository, with a copy of it as the guest has it:
// without the hidden file, and with a mark for it in the index.
type gitRig struct {
	*workspaceRig
	insideGit string // repository of the copy
}

// git runs git in the copy.
func (g *gitRig) git(args ...string) string {
	g.t.Helper()
	return hosttest.RunGit(g.t, g.inside, append([]string{"--git-dir", g.insideGit, "--work-tree", g.inside}, args...)...)
}

// newGitRig creates a repository with a main branch and another branch. If linked is set, the
// workspace is a linked work tree of it, named tree, on a branch of that name.
func newGitRig(t *testing.T, linked bool) *gitRig {
	t.Helper()
	hosttest.Need(t, hosttest.Git)
	empty := t.TempDir()
	y := newEmptyWorkspaceRig(t, func(d *lifecycle.Deps) { d.Templates = emptyTemplates{dir: empty} })
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	main := filepath.Join(home, "main")
	for _, name := range []string{"a.txt", "hidden", "protected"} {
		write(t, main, name, name+"\n")
	}
	hosttest.RunGit(t, main, "init", "-q", "-b", "main")
	hosttest.RunGit(t, main, "add", ".")
	hosttest.RunGit(t, main, "commit", "-qm", "first")
	hosttest.RunGit(t, main, "branch", "other")
	y.host = main
	if linked {
		y.host = filepath.Join(home, "tree")
		hosttest.RunGit(t, main, "worktree", "add", "-q", y.host)
	}
	copyTo(t, y.host, y.inside)
	g := &gitRig{workspaceRig: y, insideGit: filepath.Join(y.inside, ".git")}
	if linked {
		shared := t.TempDir()
		copyTo(t, filepath.Join(main, ".git"), shared)
		g.insideGit = filepath.Join(shared, "worktrees", "tree")
		y.files = guestDirs(func(inside string) string {
			if inside == sandbox.WorkspaceDir {
				return y.inside
			}
			return shared
		})
	}
	y.start(hidesAndProtects)
	y.remove("hidden")
	g.git("update-index", "--skip-worktree", "hidden")
	return g
}

func copyTo(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v\n%s", err, out)
	}
}

// commit commits an index with other content of some files. An empty content removes the file.
func (g *gitRig) commit(files map[string]string) {
	g.t.Helper()
	for name, text := range files {
		if text == "" {
			g.git("update-index", "--force-remove", name)
			continue
		}
		dir := g.t.TempDir()
		write(g.t, dir, "blob", text)
		blob := strings.TrimSpace(g.git("hash-object", "-w", filepath.Join(dir, "blob")))
		g.git("update-index", "--add", "--cacheinfo", "100644,"+blob+","+name)
	}
	g.git("commit", "-q", "--allow-empty", "-m", "inside")
}

// on starts a branch at another one, without changing files.
func (g *gitRig) on(branch, at string) {
	g.t.Helper()
	g.git("symbolic-ref", "HEAD", "refs/heads/"+branch)
	g.git("update-ref", "refs/heads/"+branch, at)
	g.git("read-tree", at)
}

// flags returns the flags of the changes below a directory, by path.
func (g *gitRig) flags(below string) map[string][]changeset.Flag {
	g.t.Helper()
	set, err := g.Changes().Changes(g.t.Context(), local, g.sb.ID, sandbox.ChangesRequest{})
	if err != nil {
		g.t.Fatal(err)
	}
	all := map[string][]changeset.Flag{}
	for _, c := range set.Changes {
		if name, ok := strings.CutPrefix(c.Path, below); ok {
			all[name] = c.Flags
		}
	}
	return all
}

func (g *gitRig) wantFlags(below string, want map[string][]changeset.Flag) {
	g.t.Helper()
	got := g.flags(below)
	for name, flags := range want {
		if have, listed := got[name]; !listed || !slices.Equal(have, flags) {
			g.t.Errorf("%s: got flags %q (listed %t), want %q", name, have, listed, flags)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			g.t.Errorf("%s is listed with flags %q, want it not listed", name, got[name])
		}
	}
}

// A reference whose commits change a hidden file is never exported, not even if a later commit
// restores the file: the commit can be checked out on the host. A reference whose commits change a
// protected file is exported on request.
func TestReferencesAreInspected(t *testing.T) {
	g := newGitRig(t, false)
	removed := map[string]string{"hidden": ""}
	g.on("fine", "main")
	g.commit(map[string]string{"a.txt": "two\n"})
	g.on("removes", "main")
	g.commit(removed)
	g.on("restores", "main")
	g.commit(removed)
	g.commit(map[string]string{"hidden": "hidden\n"})
	g.on("guarded", "main")
	g.commit(map[string]string{"protected": "two\n"})
	g.on("merged", "fine")
	g.git("merge", "-q", "--no-ff", "-s", "ours", "-m", "merge", "guarded")
	g.git("update-ref", "refs/heads/unrelated", strings.TrimSpace(g.git("commit-tree", "-m", "alone", strings.TrimSpace(g.git("rev-parse", "removes^{tree}")))))
	g.git("update-ref", "refs/heads/other", "unrelated") // the host has this branch
	g.on("fine", "fine")
	write(t, g.insideGit, "refs/heads/missing", strings.Repeat("1", 40)+"\n")
	broken := strings.Repeat("2", 40)
	write(t, g.insideGit, "objects/22/"+broken[2:], "no object")
	write(t, g.insideGit, "refs/heads/broken", broken+"\n")
	hidden, guarded, unchecked := []changeset.Flag{changeset.HiddenChanged}, []changeset.Flag{changeset.Protected}, []changeset.Flag{changeset.GitUnchecked}
	g.wantFlags(".git/refs/heads/", map[string][]changeset.Flag{
		"fine": nil, "removes": hidden, "restores": hidden, "guarded": guarded, "merged": guarded, "unrelated": nil, "other": hidden,
		"missing": unchecked, "broken": unchecked,
	})
	if _, err := g.Changes().Apply(t.Context(), local, g.sb.ID, sandbox.ApplyRequest{Protected: true}); err != nil {
		t.Fatal(err)
	}
	branches := strings.Fields(hosttest.RunGit(t, g.host, "for-each-ref", "--format=%(refname:short)", "refs/heads"))
	for _, name := range []string{"removes", "restores", "missing", "broken"} {
		if slices.Contains(branches, name) {
			t.Errorf("the branch %s was exported", name)
		}
	}
	if !slices.Contains(branches, "fine") || !slices.Contains(branches, "guarded") {
		t.Errorf("the host has the branches %q, want also fine and guarded", branches)
	}
}

// Packing references inside changes nothing. Packed references of which one is refused stay inside,
// and the files that they replace are not removed.
func TestPackedReferencesAreInspected(t *testing.T) {
	g := newGitRig(t, false)
	g.git("pack-refs", "--all")
	g.wantFlags(".git/refs/heads/", map[string][]changeset.Flag{})
	g.wantFlags(".git/packed-refs", map[string][]changeset.Flag{"": nil})
	g.commit(map[string]string{"hidden": ""})
	g.git("pack-refs", "--all")
	g.wantFlags(".git/refs/heads/", map[string][]changeset.Flag{"main": {changeset.GitUnchecked}})
	g.wantFlags(".git/packed-refs", map[string][]changeset.Flag{"": {changeset.HiddenChanged}})
}

// An exported index has the host's entries for hidden files, without the guest's marks, so that git
// on the host does not report these files as removed. Staged changes of protected files are
// protected.
func TestExportedIndexHasHiddenFiles(t *testing.T) {
	g := newGitRig(t, false)
	g.wantFlags(".git/", map[string][]changeset.Flag{}) // a mark alone is no change
	write(t, g.inside, "a.txt", "two\n")
	g.git("commit", "-qam", "inside")
	if _, err := g.Changes().Apply(t.Context(), local, g.sb.ID, sandbox.ApplyRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := hosttest.RunGit(t, g.host, "log", "-1", "--format=%s"); got != "inside\n" {
		t.Errorf("the last commit on the host is %q, want that of the sandbox", got)
	}
	if got := hosttest.RunGit(t, g.host, "status", "--porcelain"); got != "" {
		t.Errorf("git on the host reports %q, want no changes", got)
	}
	if got := hosttest.RunGit(t, g.host, "ls-files", "-v", "hidden"); got != "H hidden\n" {
		t.Errorf("the host's index has %q, want the hidden file without a mark", got)
	}
	write(t, g.inside, "protected", "two\n")
	g.git("add", "protected")
	if got := g.flags(".git/")["index"]; !slices.Equal(got, []changeset.Flag{changeset.Protected}) {
		t.Errorf("the index with a staged protected file has the flags %q, want protected", got)
	}
	write(t, g.insideGit, "index", "no index")
	if got := g.flags(".git/")["index"]; !slices.Equal(got, []changeset.Flag{changeset.GitUnchecked}) {
		t.Errorf("a damaged index has the flags %q, want git_unchecked", got)
	}
}

// A workspace that is a linked work tree shares its repository with others. Its commits reach the
// repository, but nothing that belongs to another work tree.
func TestChangesInSharedRepository(t *testing.T) {
	g := newGitRig(t, true)
	shared := filepath.Dir(filepath.Dir(g.insideGit))
	write(t, g.inside, "a.txt", "two\n")
	g.git("commit", "-qam", "inside")
	write(t, shared, "worktrees/two/HEAD", "ref: refs/heads/x\n")
	write(t, shared, "HEAD", "ref: refs/heads/x\n")
	write(t, shared, "objects/info/alternates", "/etc\n")
	blob := strings.TrimSpace(hosttest.RunGit(t, g.host, "rev-parse", "HEAD:hidden"))
	if err := os.Remove(filepath.Join(shared, "objects", blob[:2], blob[2:])); err != nil {
		t.Fatal(err)
	}
	for name, flags := range g.flags("") {
		for _, forbidden := range []string{".git/HEAD", ".git/worktrees/two", ".git/objects/info", ".git/objects/" + blob[:2] + "/" + blob[2:]} {
			if strings.HasPrefix(name, forbidden) {
				t.Errorf("%s is listed with the flags %q", name, flags)
			}
		}
	}
	g.wantFlags(".git/refs/heads/", map[string][]changeset.Flag{"tree": nil})
	if _, err := g.Changes().Apply(t.Context(), local, g.sb.ID, sandbox.ApplyRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := hosttest.RunGit(t, g.host, "log", "-1", "--format=%s %D"); got != "inside HEAD -> tree\n" {
		t.Errorf("the last commit of the work tree is %q, want that of the sandbox", got)
	}
	if got := hosttest.RunGit(t, g.host, "status", "--porcelain"); got != "" {
		t.Errorf("git in the work tree reports %q, want no changes", got)
	}
	if got := hosttest.RunGit(t, filepath.Join(filepath.Dir(g.host), "main"), "log", "-1", "--format=%s %D"); !strings.HasPrefix(got, "first HEAD -> main") {
		t.Errorf("the main work tree is at %q, want it unchanged", got)
	}
	// A changed object does not fit its name.
	object := strings.TrimSpace(hosttest.RunGit(t, g.host, "rev-parse", "HEAD:a.txt"))
	path := filepath.Join(shared, "objects", object[:2], object[2:])
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, shared, "objects/"+object[:2]+"/"+object[2:], "another")
	if got := g.flags(".git/objects/" + object[:2] + "/")[object[2:]]; !slices.Contains(got, changeset.GitUnchecked) {
		t.Errorf("a changed object has the flags %q, want git_unchecked", got)
	}
	g.commit(map[string]string{"hidden": ""})
	g.wantFlags(".git/refs/heads/", map[string][]changeset.Flag{"tree": {changeset.HiddenChanged}})
}
