package changeset_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
)

// put writes a file.
func put(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// remove removes a file or directory.
func remove(t testing.TB, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}

func TestCompareFindsChangesOfBothSides(t *testing.T) {
	files := map[string]string{"mine": "1", "theirs": "1", "both": "1", "alike": "1", "gone in": "1", "gone out": "1", "gone both": "1", "in gone out": "1", "out gone in": "1", "d/x": "1", "e/x": "1"}
	for _, copied := range []bool{false, true} {
		b := newTreeTest(t, files)
		if copied {
			copied := filepath.Join(t.TempDir(), "copy")
			if err := os.CopyFS(copied, os.DirFS(b.host)); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(copied)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if b.base.Start, err = changeset.Walk(t.Context(), root, changeset.Bounds{}, nil); err != nil {
				t.Fatal(err)
			}
			b.base.Content = root
		}
		in, out := func(name string) string { return filepath.Join(b.inside, name) }, func(name string) string { return filepath.Join(b.host, name) }
		put(t, in("mine"), "22")
		put(t, out("theirs"), "333")
		put(t, in("both"), "22")
		put(t, out("both"), "333")
		put(t, in("alike"), "22")
		put(t, out("alike"), "22")
		remove(t, in("gone in"))
		remove(t, out("gone out"))
		remove(t, in("gone both"))
		remove(t, out("gone both"))
		put(t, in("in gone out"), "22")
		remove(t, out("in gone out"))
		remove(t, in("out gone in"))
		put(t, out("out gone in"), "333")
		put(t, in("new"), "22")
		put(t, in("new both"), "22")
		put(t, out("new both"), "333")
		put(t, in("new alike"), "22")
		put(t, out("new alike"), "22")
		put(t, out("new out"), "333")
		// The sandbox created a directory for which the host created a file.
		remove(t, in("d"))
		put(t, out("d/new"), "333")
		// The host turned a directory into a link, and the sandbox created a file in the directory.
		put(t, in("e/y"), "22")
		remove(t, out("e"))
		writeTree(t, b.host, map[string]string{"e": "-> /etc"})
		want := []string{
			"changed both changed_outside", "removed d changed_outside", "removed d/x", "created e/y changed_outside",
			"removed gone in", "changed in gone out removed_outside", "changed mine", "created new", "created new both created_outside",
			"removed out gone in changed_outside",
		}
		set := b.compare(t)
		if got := summaries(set); !slices.Equal(got, want) {
			t.Errorf("copied %v: got\n%s\nwant\n%s", copied, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		before := describeTree(t, b.host, true)
		if _, err := b.apply(t, set.Changes, false); fault.CodeOf(err) != "changes_conflict" {
			t.Errorf("applied conflicts: %v", err)
		}
		// Even with Overwrite nothing is written through a link.
		if _, err := b.apply(t, set.Changes, true); fault.CodeOf(err) != "changes_conflict" {
			t.Errorf("applied through a link: %v", err)
		}
		if d := diffTrees(before, describeTree(t, b.host, true)); d != "" {
			t.Errorf("the refused Apply has changed files:\n%s", d)
		}
		// A file that an undo restored has another ctime, and counts as unchanged as before.
		set = b.compare(t)
		if got := summaries(set); !slices.Equal(got, want) {
			t.Errorf("copied %v: after the undo, got\n%s", copied, strings.Join(got, "\n"))
		}
		chosen, _ := changeset.Select(set.Changes, func(c changeset.Change) bool {
			return c.Path == "both" || c.Path == "new both" || c.Path == "in gone out"
		})
		if _, err := b.apply(t, chosen, true); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"both", "new both", "in gone out"} {
			if text, err := os.ReadFile(out(name)); err != nil || string(text) != "22" {
				t.Errorf("%s is %q, %v", name, text, err)
			}
		}
		b.checkClean(t)
	}
}

func TestCompareReadsOnlyTouchedFiles(t *testing.T) {
	b := newTreeTest(t, map[string]string{"a": "1", "b": "1"})
	// A sandbox without changes shows the host's own files.
	b.source.dir = b.host
	if set := b.compare(t); len(set.Changes) != 0 || b.source.sumRequests != 0 {
		t.Errorf("without changes: got %q, and %d files were read", summaries(set), b.source.sumRequests)
	}
	put(t, filepath.Join(b.host, "a"), "of the user's")
	if set := b.compare(t); len(set.Changes) != 0 || b.source.sumRequests != 0 {
		t.Errorf("with changes of the user: got %q, and %d files were read", summaries(set), b.source.sumRequests)
	}
}

func TestCompareOmitsIgnoredPaths(t *testing.T) {
	b := newTreeTest(t, map[string]string{"a": "1", ".env": "KEY", "secrets/k": "1"})
	remove(t, filepath.Join(b.inside, ".env"))
	remove(t, filepath.Join(b.inside, "secrets"))
	set, err := changeset.Compare(t.Context(), b.source, b.base, changeset.Options{
		Dir: "/workspace", Ignore: func(p string) bool { return p == ".env" || strings.HasPrefix(p+"/", "secrets/") },
	})
	if err != nil || len(set.Changes) > 0 {
		t.Errorf("Compare: got %q, error %v, want no changes", summaries(set), err)
	}
}

func TestCompareReportsModesAndTypes(t *testing.T) {
	b := newTreeTest(t, map[string]string{"script": "#!", "link": "-> script", "file": "1", "dir/x": "1", "d/": ""})
	if err := os.Chmod(filepath.Join(b.inside, "script"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(b.inside, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "file", "dir"} {
		remove(t, filepath.Join(b.inside, name))
	}
	writeTree(t, b.inside, map[string]string{"link": "-> dir", "file/y": "2", "dir": "-> file"})
	set := b.compare(t)
	want := []string{"changed d", "changed dir", "removed dir/x", "changed file", "created file/y", "changed link", "changed script"}
	if got := summaries(set); !slices.Equal(got, want) {
		t.Fatalf("Compare: got %q, want %q", got, want)
	}
	if c := set.Changes[6]; !c.SameContent || c.Text != "diff --git a/script b/script\nold mode 100644\nnew mode 100755\n" || c.Added+c.Removed != 0 {
		t.Errorf("changed mode: got %+v", c)
	}
	if _, err := b.apply(t, set.Changes, false); err != nil {
		t.Fatal(err)
	}
	if d := diffTrees(describeTree(t, b.inside, false), describeTree(t, b.host, false)); d != "" {
		t.Errorf("the trees differ:\n%s", d)
	}
}

func TestDigestCoversChanges(t *testing.T) {
	b := newTreeTest(t, map[string]string{"a": "1\n"})
	put(t, filepath.Join(b.inside, "a"), "2\n")
	first := b.compare(t).Digest
	if again := b.compare(t).Digest; again != first {
		t.Error("the same changes have two digests")
	}
	seen := map[string]string{first: "the first"}
	for _, c := range []struct {
		what   string
		change func()
	}{
		{"content", func() { put(t, filepath.Join(b.inside, "a"), "3\n") }},
		{"mode", func() { _ = os.Chmod(filepath.Join(b.inside, "a"), 0o755) }},
		{"a second file", func() { put(t, filepath.Join(b.inside, "b"), "") }},
		{"a file outside", func() { put(t, filepath.Join(b.host, "a"), "44\n") }},
		{"a file outside again", func() { put(t, filepath.Join(b.host, "a"), "555\n") }},
	} {
		c.change()
		d := b.compare(t).Digest
		if seen[d] != "" {
			t.Errorf("%s has the digest of %s", c.what, seen[d])
		}
		seen[d] = c.what
	}
}

func TestCompareBoundsTexts(t *testing.T) {
	b := newTreeTest(t, map[string]string{"large": strings.Repeat("line\n", 500), "huge": "", "binary": "text\n"})
	put(t, filepath.Join(b.inside, "large"), strings.Repeat("line\n", 499)+"other\nmore\n")
	put(t, filepath.Join(b.inside, "huge"), strings.Repeat("line\n", 20000))
	put(t, filepath.Join(b.inside, "binary"), "text\n\x00")
	set, err := changeset.Compare(t.Context(), b.source, b.base, changeset.Options{Dir: "/workspace", Text: true, Bounds: changeset.Bounds{TextBytes: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	if c := set.Changes[0]; !c.Binary || c.Text != "" {
		t.Errorf("binary file: got %+v", c)
	}
	if c := set.Changes[1]; !c.Omitted || c.Text != "" || c.Added != 0 {
		t.Errorf("huge file: got %+v", c)
	}
	if c := set.Changes[2]; !c.Omitted || c.Text != "" || c.Added != 2 || c.Removed != 1 {
		t.Errorf("large file: got %+v", c)
	}
	// A worst-case difference is computed quickly.
	var x, y strings.Builder
	for i := range 200_000 {
		x.WriteString([]string{"a\n", "b\n", "\n"}[i%3])
		y.WriteString([]string{"b\n", "\n", "a\n", "a\n"}[i%4])
	}
	b = newTreeTest(t, map[string]string{"bad": x.String()})
	put(t, filepath.Join(b.inside, "bad"), y.String())
	if set := b.compare(t); set.Changes[0].Text == "" || set.Changes[0].Omitted {
		t.Error("the text of a worst-case difference is absent")
	}
}

func TestSpecialFilesAreRefused(t *testing.T) {
	b := newTreeTest(t, map[string]string{"a": "1"})
	if err := syscall.Mkfifo(filepath.Join(b.inside, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	writeTree(t, b.inside, map[string]string{"out": "-> ../../etc/passwd", "absolute": "-> /etc/passwd", "in": "-> a", "sub/up": "-> ../a", "sub/in/out": "-> x/../../../../..", ".crannog-apply-x": "1"})
	put(t, filepath.Join(b.inside, "suid"), "1")
	if err := os.Chmod(filepath.Join(b.inside, "suid"), 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	set := b.compare(t)
	want := []string{
		"created .crannog-apply-x special", "created absolute link_out", "created in", "created out link_out", "created pipe special", "created sub",
		"created sub/in", "created sub/in/out link_out", "created sub/up", "created suid setuid",
	}
	if got := summaries(set); !slices.Equal(got, want) {
		t.Fatalf("Compare: got %q, want %q", got, want)
	}
	before := describeTree(t, b.host, true)
	for _, c := range set.Changes {
		if !c.Refused() {
			continue
		}
		if chosen, left := changeset.Select(set.Changes, func(x changeset.Change) bool { return x.Path == c.Path }); len(chosen) > 0 || len(left) != len(set.Changes) {
			t.Errorf("Select has selected %s, which is refused", c.Path)
		}
		for _, flags := range [][]changeset.Flag{c.Flags, nil} { // even if the caller cleared its flags
			c.Flags = flags
			if _, err := b.apply(t, []changeset.Change{c}, true); fault.CodeOf(err) != "changes_refused" {
				t.Errorf("apply(%s): error %v", c.Path, err)
			}
		}
	}
	if d := diffTrees(before, describeTree(t, b.host, true)); d != "" {
		t.Errorf("the trees differ:\n%s", d)
	}
	// Control: the other changes are applied.
	chosen, _ := changeset.Select(set.Changes, func(changeset.Change) bool { return true })
	if _, err := b.apply(t, chosen, false); err != nil || len(chosen) != 4 {
		t.Errorf("apply: got %d, error %v", len(chosen), err)
	}
}

func TestSelectAddsRequiredDirectories(t *testing.T) {
	b := newTreeTest(t, map[string]string{"old/a": "1", "old/b": "1", "swap/x": "1"})
	remove(t, filepath.Join(b.inside, "old"))
	remove(t, filepath.Join(b.inside, "swap"))
	writeTree(t, b.inside, map[string]string{"new/deep/file": "1", "swap": "now a file"})
	set := b.compare(t)
	names := func(list []changeset.Change) (all []string) {
		for _, c := range list {
			all = append(all, c.Path)
		}
		return all
	}
	for path, want := range map[string][]string{
		"new/deep/file": {"new", "new/deep", "new/deep/file"},
		"old":           nil, // without its files the directory cannot be removed
		"old/a":         {"old/a"},
		"swap":          nil,
	} {
		if got, _ := changeset.Select(set.Changes, func(c changeset.Change) bool { return c.Path == path }); !slices.Equal(names(got), want) {
			t.Errorf("%s: got %q, want %q", path, names(got), want)
		}
	}
	got, left := changeset.Select(set.Changes, func(c changeset.Change) bool { return c.Path != "old/b" })
	if len(left) != 2 || !slices.Equal(names(left), []string{"old", "old/b"}) {
		t.Errorf("Select: left out %q", names(left))
	}
	if _, err := b.apply(t, got, false); err != nil {
		t.Fatal(err)
	}
}

// The sandbox replaces a link by a directory. Outside it is still a link, so no file below the path
// exists there.
func TestApplyReplacesLinkByDirectory(t *testing.T) {
	for _, target := range []string{"other", "no such", "../elsewhere"} {
		b := newTreeTest(t, map[string]string{"other/x": "1", "l": "-> " + target})
		remove(t, filepath.Join(b.inside, "l"))
		writeTree(t, b.inside, map[string]string{"l/a": "1", "l/d/e/f": "2"})
		set := b.compare(t)
		if _, err := b.apply(t, set.Changes, false); err != nil {
			t.Fatalf("-> %s: %v\n%q", target, err, summaries(set))
		}
		if d := diffTrees(describeTree(t, b.inside, false), describeTree(t, b.host, false)); d != "" {
			t.Errorf("-> %s: inside and outside differ:\n%s", target, d)
		}
		b.checkClean(t)
	}
}

func TestCompareDetectsChangeWithOldTime(t *testing.T) {
	b := newTreeTest(t, map[string]string{"a": "1"})
	name, host := filepath.Join(b.inside, "a"), filepath.Join(b.host, "a")
	for {
		put(t, name, "2")
		was, err := os.Stat(host)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, was.ModTime(), was.ModTime()); err != nil {
			t.Fatal(err)
		}
		now, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		// The times of files advance in steps of some milliseconds.
		if now.Sys().(*syscall.Stat_t).Ctim != was.Sys().(*syscall.Stat_t).Ctim {
			break
		}
	}
	if got := summaries(b.compare(t)); !slices.Equal(got, []string{"changed a"}) {
		t.Errorf("Compare: got %q, want the change of a", got)
	}
}
