package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// fakeToken has the form of a GitHub token, but is not valid.
const fakeToken = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"

// searchWorkspace creates a workspace with files and searches it under a level.
func searchWorkspace(t *testing.T, level string, files map[string]string) sandbox.Keys {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Level: level}})
	if err != nil {
		t.Fatal(err)
	}
	// None of these blocks the search or is followed.
	if err := syscall.Mkfifo(filepath.Join(dir, "secret.pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "secret.link")); err != nil {
		t.Fatal(err)
	}
	c, err := pathMasks(dir, sandbox.Base{}, p)
	if err != nil {
		t.Fatal(err)
	}
	search := &KeySearch{workspace: dir, files: c.files}
	search.Start()
	return search.Found()
}

// S8: contents that look like keys are found whatever the name of the file is. Files that the
// policy hides are not searched or named, because they are not inside.
func TestS8ContentsThatLookLikeKeys(t *testing.T) {
	pem := "-----BEGIN RSA PRIVATE KEY-----\nMIIBOgIBAAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf9Cnzj4p4WGeKLs1Pt8Qu\n-----END RSA PRIVATE KEY-----\n"
	got := searchWorkspace(t, "standard", map[string]string{
		"a/b/innocent.dat": "x = " + fakeToken + "\n", "README.md": "see AKIA" + "ABCDEFGHIJKLMNOP and " + fakeToken, "deep/er/x.bin": pem, ".git/config": "url = https://me:" + fakeToken + "@github.com/x/y\n",
		".env": fakeToken, "plain.txt": "nothing: ghp_short, sk-and-words-joined-by-dashes-alone\n", ".git/objects/aa/b": fakeToken,
	})
	var names []string
	for _, f := range got.Files {
		names = append(names, f.Name+" "+strings.Join(f.Kinds, ","))
	}
	slices.Sort(names)
	want := []string{".git/config github-token", "README.md aws-key,github-token", "a/b/innocent.dat github-token", "deep/er/x.bin private-key"}
	if !slices.Equal(names, want) || got.Count != 4 || got.Looked != 5 || got.Left != 0 {
		t.Errorf("keys at level standard: got %+v", got)
	}
	// Control: the same file is named where it is visible.
	if got := searchWorkspace(t, "minimal", map[string]string{".env": fakeToken}); got.Count != 1 || got.Files[0].Name != ".env" {
		t.Errorf("keys at level minimal: got %+v, want .env", got)
	}
}

// TestS8KeySearchIsLimited checks that the search is limited in files and bytes, begins with likely
// names, and counts the files that it leaves out.
func TestS8KeySearchIsLimited(t *testing.T) {
	files := map[string]string{"zzz/deploy-notes.txt": fakeToken, "node_modules/x/secret.js": fakeToken}
	for i := range 2 * maxKeyFiles {
		files[fmt.Sprintf("src/%04d.dat", i)] = "x"
	}
	got := searchWorkspace(t, "standard", files)
	if got.Looked != maxKeyFiles || got.Left != len(files)-maxKeyFiles || got.Count != 1 || got.Files[0].Name != "zzz/deploy-notes.txt" {
		t.Errorf("keys in too many files: got %+v", got)
	}
	large := strings.Repeat("some text. ", maxFileBytes/8)
	files = map[string]string{}
	for i := range 2 * maxKeyBytes / maxFileBytes {
		files[fmt.Sprintf("%04d.txt", i)] = large + fakeToken // beyond the part that is read
	}
	got = searchWorkspace(t, "standard", files)
	if got.Looked != maxKeyBytes/maxFileBytes || got.Left != got.Looked || got.Count != 0 {
		t.Errorf("keys beyond the searched bytes: got %+v, want none", got)
	}
}

// S8: a program on the host may replace a file before it is searched. The search does not block,
// does not follow a link, and does not take the replacement for the file.
func TestS8ReplacedFilesAreNotSearched(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	for _, name := range []string{filepath.Join(dir, "file"), outside} {
		if err := os.WriteFile(name, []byte(fakeToken), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644), os.Mkdir(filepath.Join(dir, "dir"), 0o755),
		os.Symlink(outside, filepath.Join(dir, "link")), os.Symlink("file", filepath.Join(dir, "alias"))); err != nil {
		t.Fatal(err)
	}
	search := &KeySearch{workspace: dir}
	for _, name := range []string{"pipe", "dir", "link", "alias", "gone", "file"} {
		search.files.add(sandbox.WorkspaceDir + "/" + name)
	}
	search.Start()
	select {
	case <-search.done:
	case <-hosttest.Late():
		t.Fatal("the search blocks on a pipe")
	}
	// Control: the file itself.
	if got := search.Found(); got.Looked != 1 || got.Left != 5 || got.Count != 1 || got.Files[0].Name != "file" {
		t.Errorf("keys among replaced files: got %+v, want only file", got)
	}
}

// S8: if many files have keys, all are counted, and the first few are named.
func TestS8ReportNamesFirstFiles(t *testing.T) {
	files := map[string]string{}
	for i := range 2 * sandbox.MaxNamed {
		files[fmt.Sprintf("%02d.txt", i)] = fakeToken
	}
	if got := searchWorkspace(t, "standard", files); got.Count != len(files) || len(got.Files) != sandbox.MaxNamed {
		t.Errorf("%d files have keys and %d are named, want all counted and the first few named", got.Count, len(got.Files))
	}
}

// S8: the number of remembered files is limited for each rank separately, before they are sorted:
// many files of one kind cannot hide one of another.
func TestS8CandidatesAreLimitedPerRank(t *testing.T) {
	var c candidates
	const n = 3 * maxCandidates
	for i := range n {
		c.add(fmt.Sprintf("%s/%d.bin", sandbox.WorkspaceDir, i))
	}
	c.add(sandbox.WorkspaceDir + "/deep/er/token.bin")
	c.add(sandbox.WorkspaceDir + "/a.txt")
	list := c.inOrder()
	if len(list) != maxCandidates+2 || list[0] != "deep/er/token.bin" || list[1] != "a.txt" || c.seen != n+2 {
		t.Errorf("%d candidates of %d files, the first are %q", len(list), c.seen, list[:2])
	}
}

func BenchmarkKeySearch(b *testing.B) {
	dir := b.TempDir()
	search := &KeySearch{workspace: dir}
	for i := range maxKeyFiles {
		name := fmt.Sprintf("%04d.txt", i)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat("func some(text string) error { return nil }\n", 186)), 0o644); err != nil {
			b.Fatal(err)
		}
		search.files.add(sandbox.WorkspaceDir + "/" + name)
	}
	for b.Loop() {
		if k := search.search(); k.Looked != maxKeyFiles {
			b.Fatal(k)
		}
	}
}
