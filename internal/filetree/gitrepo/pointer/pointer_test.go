package pointer

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// git runs git without the host's settings.
func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	hosttest.Need(t, hosttest.Git)
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "protocol.file.allow=always", "-c", "user.name=A", "-c", "user.email=a@b"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// newDir returns an empty directory, without links in its path.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// repository creates a repository with one commit.
func repository(t *testing.T, dir string) {
	t.Helper()
	write(t, filepath.Join(dir, "a.txt"), "a\n")
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-qm", "first")
}

func TestF3FindsRepository(t *testing.T) {
	at := newDir(t)
	repo := filepath.Join(at, "repo")
	repository(t, repo)
	git(t, repo, "worktree", "add", "-q", "-b", "one", "../one")
	super := filepath.Join(at, "super")
	repository(t, super)
	git(t, super, "submodule", "--quiet", "add", repo, "libs/sub")
	bare := filepath.Join(at, "bare.git")
	git(t, at, "clone", "-q", "--bare", repo, bare)
	git(t, bare, "worktree", "add", "-q", "-b", "two", "../two")
	git(t, at, "init", "-q", "--separate-git-dir="+filepath.Join(at, "elsewhere"), filepath.Join(at, "apart"))
	git(t, filepath.Join(at, "apart"), "config", "core.worktree", filepath.Join(at, "apart"))
	git(t, at, "clone", "-q", "--shared", repo, filepath.Join(at, "borrower"))
	for _, c := range []struct {
		top, dir, name string
		relative       bool
	}{
		{"one", "repo/.git", "one", false},
		{"super/libs/sub", "super/.git/modules/libs/sub", "", true},
		{"two", "bare.git", "two", false},
		{"apart", "elsewhere", "", false},
	} {
		r, err := Find(filepath.Join(at, c.top))
		if err != nil || r == nil {
			t.Fatalf("Find(%s): got %v, error %v", c.top, r, err)
		}
		if r.Dir != filepath.Join(at, c.dir) || r.Worktree != c.name || r.Relative != c.relative {
			t.Errorf("Find(%s): got %+v", c.top, r)
		}
	}
	// A tree with its repository inside, or without one, has nothing to show.
	for _, top := range []string{"repo", "super", "."} {
		if r, err := Find(filepath.Join(at, top)); r != nil || err != nil {
			t.Errorf("Find(%s): got %v, error %v", top, r, err)
		}
	}
	if b := Borrows(filepath.Join(at, "borrower")); len(b) != 1 || b[0] != filepath.Join(repo, ".git/objects") {
		t.Errorf("Borrows: got %v", b)
	}
}

// F3: a tree that another person wrote can name any path, and only its own repository is followed.
func TestF3FindFollowsOnlyOwnRepository(t *testing.T) {
	at := newDir(t)
	repo := filepath.Join(at, "repo")
	repository(t, repo)
	git(t, repo, "worktree", "add", "-q", "-b", "one", "../one")
	write(t, filepath.Join(at, ".ssh/id_rsa"), "key")
	write(t, filepath.Join(at, ".ssh/commondir"), "../.ssh\n")
	tree := filepath.Join(at, "tree")
	// These directories claim to belong to the tree but are not repositories.
	write(t, filepath.Join(at, "keys/config"), "[core]\nworktree = "+tree+"\n")
	write(t, filepath.Join(at, "keys/HEAD"), "ref: refs/heads/main\n")
	steps := map[string]func(){
		"a directory of keys":           func() { write(t, filepath.Join(tree, ".git"), "gitdir: "+filepath.Join(at, ".ssh")+"\n") },
		"a repository of another":       func() { write(t, filepath.Join(tree, ".git"), "gitdir: ../repo/.git\n") },
		"another's work tree":           func() { write(t, filepath.Join(tree, ".git"), "gitdir: ../repo/.git/worktrees/one\n") },
		"nothing":                       func() { write(t, filepath.Join(tree, ".git"), "gitdir: ../gone\n") },
		"no pointer":                    func() { write(t, filepath.Join(tree, ".git"), "../repo\n") },
		"a work tree made by hand":      func() { forge(t, tree, repo, "../../../../repo/.git") },
		"a work tree of keys":           func() { forge(t, tree, repo, "../../../../.ssh") },
		"a work tree of no repository":  func() { forge(t, tree, repo, "../..") },
		"keys beside a config":          func() { write(t, filepath.Join(tree, ".git"), "gitdir: "+filepath.Join(at, "keys")+"\n") },
		"a link to another's work tree": func() { linkTo(t, tree, filepath.Join(repo, ".git/worktrees/one")) },
		// Opening this pipe would wait for a writer.
		"a pipe": func() {
			forge(t, tree, repo, "../../../../repo/.git")
			pipe(t, filepath.Join(tree, "meta/worktrees/x/commondir"))
		},
		"a path with a NUL byte": func() { write(t, filepath.Join(tree, ".git"), "gitdir: \x00\n") },
	}
	for name, step := range steps {
		if err := os.RemoveAll(tree); err != nil {
			t.Fatal(err)
		}
		step()
		r, err := Find(tree)
		if r != nil || fault.CodeOf(err) != CodeNotFollowed {
			t.Errorf("%s: Find: got %+v, error %v", name, r, err)
		}
	}
	// Control: the same tree, with a repository that names it.
	if r, err := Find(filepath.Join(at, "one")); r == nil || err != nil {
		t.Errorf("control: Find: got %v, error %v", r, err)
	}
}

// pipe replaces a file by a named pipe.
func pipe(t *testing.T, name string) {
	t.Helper()
	if err := errors.Join(os.Remove(name), syscall.Mkfifo(name, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// forge creates a directory in the tree that looks like a work tree of a repository.
func forge(t *testing.T, tree, _, common string) {
	write(t, filepath.Join(tree, ".git"), "gitdir: meta/worktrees/x\n")
	write(t, filepath.Join(tree, "meta/worktrees/x/commondir"), common+"\n")
	write(t, filepath.Join(tree, "meta/worktrees/x/gitdir"), filepath.Join(tree, ".git")+"\n")
	write(t, filepath.Join(tree, "meta/worktrees/x/HEAD"), "ref: refs/heads/main\n")
}

// linkTo makes the tree's .git lead to a directory through a link.
func linkTo(t *testing.T, tree, to string) {
	write(t, filepath.Join(tree, ".git"), "gitdir: meta\n")
	if err := os.Symlink(to, filepath.Join(tree, "meta")); err != nil {
		t.Fatal(err)
	}
}

func TestWorktreeOf(t *testing.T) {
	for text, want := range map[string]string{
		"[core]\n\tworktree = ../x\n":                          "../x",
		"[Core]\nWorkTree=../../y # where\n":                   "../../y",
		"[core]\nworktree = \"/a b/#c\" ; no\n":                "/a b/#c",
		"[core]\nworktree = a\\\nb\n":                          "ab",
		"[core \"x\"]\nworktree = a\n":                         "",
		"[remote]\nworktree = a\n":                             "",
		"; [core]\nworktree = a\n":                             "",
		"[core] worktree = a\n[user]\nworktree = b\n":          "a",
		"[core]\nworktree = a\n[core]\nworktree = \"\\\\b\"\n": "\\b",
		"[core\nworktree = a\n":                                "",
		"[core]\nworktree\n":                                   "",
		"":                                                     "",
	} {
		if got := worktreeOf([]byte(text)); got != want {
			t.Errorf("worktreeOf(%q): got %q, want %q", text, got, want)
		}
	}
}

func FuzzWorktreeOf(f *testing.F) {
	f.Add("[core]\n\tworktree = \"../x\" # y\n")
	f.Fuzz(func(t *testing.T, text string) {
		// A value is not longer than the file.
		if got := worktreeOf([]byte(text)); len(got) > len(text) {
			t.Errorf("worktreeOf: got %q, %q", text, got)
		}
		// The last assignment wins.
		if strings.ContainsRune(text, '\\') {
			return
		}
		if got := worktreeOf([]byte(text + "\n[core]\nworktree = here\n")); got != "here" {
			t.Errorf("worktreeOf: got %q, %q", text, got)
		}
	})
}
