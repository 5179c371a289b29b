package changeset_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// export returns a sandbox with every kind of change that a patch can contain, and its patch.
func export(t *testing.T) (b *treeTest, patch string, left []changeset.Change) {
	t.Helper()
	b = newTreeTest(t, map[string]string{
		"edited": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "removed": "1\n2\n", "removed empty": "", "script": "#!/bin/sh\n", "no end": "1\n2", "an end": "1\n2",
		"link": "-> edited", "was a file": "1\n", "bin": "\x00\x01", "with space": "1\n", "old/name": "content\n",
	})
	for _, name := range []string{"removed", "removed empty", "link", "was a file", "old"} {
		remove(t, filepath.Join(b.inside, name))
	}
	writeTree(t, b.inside, map[string]string{
		"edited": "1\n2\n3\n4\nfive\n6\n7\n8\n9\nten\n", "script": "#!/bin/sh\necho\n", "no end": "1\n2\n", "an end": "1\n3", "link": "-> script", "was a file": "-> edited",
		"bin": "\x00\x02", "with space": "2\n", "new/name": "content\n", "new empty": "", "new link": "-> edited", "new script": "!#!/bin/sh\n", "new no end": "x",
		"quo\"te\\ \ttab": "x\n", "ümlaut": "ü\n", "--- evil": "+++ b/evil\n--- a/x\n@@ -1 +1 @@\n", "bidi\u202egnp": "x\n",
	})
	if err := os.Chmod(filepath.Join(b.inside, "script"), 0o755); err != nil {
		t.Fatal(err)
	}
	set := b.compare(t)
	staged := b.stage(t, set)
	var out bytes.Buffer
	var err error
	if left, err = changeset.WritePatch(t.Context(), &out, staged, b.base, set.Changes, b.source.Redactor, changeset.Bounds{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range set.Changes {
		if c.Text != "" && !strings.Contains(out.String(), c.Text) {
			t.Errorf("the text of %s is not in the patch", c.Path)
		}
	}
	return b, out.String(), left
}

func TestPatchAppliesWithGitAndPatch(t *testing.T) {
	hosttest.Need(t, hosttest.Git, hosttest.Program("patch"))
	for _, tool := range [][]string{{"git", "apply", "-"}, {"git", "apply", "--check", "--verbose", "-"}, {"patch", "-p1", "--batch"}} {
		b, text, left := export(t)
		var names strings.Builder
		for _, c := range left {
			names.WriteString(string(c.Op) + " " + c.Path + ",")
		}
		if names.String() != "changed bin,created new,removed old," {
			t.Errorf("left out: %s", names.String())
		}
		if !strings.HasPrefix(text, "# not in this patch: changed bin\n") {
			t.Errorf("the patch begins with %.80q", text)
		}
		if strings.Contains(text, "\u202e") {
			t.Error("the patch has a character that changes the direction of text")
		}
		cmd := exec.Command(tool[0], tool[1:]...)
		cmd.Dir, cmd.Stdin = b.host, strings.NewReader(text)
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(b.host))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s\n%s", tool, err, out, text)
		}
		if len(tool) > 3 {
			continue
		}
		put(t, filepath.Join(b.host, "bin"), "\x00\x02")
		if d := diffTrees(gitView(describeTree(t, b.inside, false)), gitView(describeTree(t, b.host, false))); d != "" {
			t.Errorf("%v: inside and outside differ:\n%s\n%s\n%s", tool, d, out, text)
		}
	}
}

func TestWriteTar(t *testing.T) {
	b := newTreeTest(t, map[string]string{"gone": "1", "mode": "1"})
	remove(t, filepath.Join(b.inside, "gone"))
	if err := os.Chmod(filepath.Join(b.inside, "mode"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeTree(t, b.inside, map[string]string{"new/file": "text", "new/link": "-> file", "new/script": "!#!", "no\xfftext": "1", "empty/": ""})
	set := b.compare(t)
	staged := b.stage(t, set)
	var out bytes.Buffer
	if err := changeset.WriteTar(&out, staged, set.Changes); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command("tar", "-xpf", "-")
	cmd.Dir, cmd.Stdin = dir, &out
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tar: error %v, got %s", err, text)
	}
	if d := diffTrees(describeTree(t, b.inside, false), describeTree(t, dir, false)); d != "" {
		t.Errorf("the unpacked archive differs:\n%s", d)
	}
}
