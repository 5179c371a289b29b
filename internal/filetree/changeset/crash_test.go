package changeset_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
)

// The test binary is also the process that is killed while it applies.
func TestMain(m *testing.M) {
	if dir := os.Getenv("CHANGES_TEST_APPLY"); dir != "" {
		os.Exit(applyAndDie(dir, os.Getenv("CHANGES_TEST_STEP"), os.Getenv("CHANGES_TEST_APART") != ""))
	}
	os.Exit(m.Run())
}

// newChangedTree creates a tree with changes of every kind.
func newChangedTree(t testing.TB, dir string) (host, inside string) {
	t.Helper()
	host, inside = filepath.Join(dir, "host"), filepath.Join(dir, "inside")
	writeTree(t, host, map[string]string{
		"edited": "1\n", "script": "#!", "gone/deep/file": "1", "gone/other": "1", "file to dir": "1", "dir to file/x": "1", "link": "-> edited", "calm/x": "1", "shut/x": "1",
	})
	writeTree(t, inside, map[string]string{
		"edited": "2\n2\n", "script": "!#!", "file to dir/y": "2", "dir to file": "2", "link": "-> calm", "calm/x": "1", "new/deep/file": "2", "new/link": "-> deep", "shut/x": "1", "shut/y": "2",
	})
	if err := os.Chmod(filepath.Join(inside, "shut"), 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // or it could not be removed
		_ = os.Chmod(filepath.Join(inside, "shut"), 0o755)
		_ = os.Chmod(filepath.Join(host, "shut"), 0o755)
	})
	return host, inside
}

// applyAndDie runs an Apply that kills its process at a step, and returns an exit code.
func applyAndDie(dir, at string, apart bool) int {
	host := filepath.Join(dir, "host")
	root, err := os.OpenRoot(host)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	start, err := changeset.Walk(context.Background(), root, changeset.Bounds{}, nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	source := &localSource{dir: filepath.Join(dir, "inside")}
	set, err := changeset.Compare(context.Background(), source, changeset.Base{Start: start, Outside: root}, changeset.Options{Dir: "/workspace"})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	n := 0
	step := func(name string) {
		fmt.Println("step", name)
		if at == strconv.Itoa(n) || at != "" && name == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		n++
	}
	o := changeset.ApplyOptions{Dir: "/workspace", Journals: filepath.Join(dir, "journals")}
	if _, err := changeset.Apply(context.Background(), source, root, set.Changes, changeset.Watched(o, step, apart)); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// applyAndKill runs an Apply in another process that is killed at a step, and returns the steps
// before it.
func applyAndKill(t *testing.T, dir, at string, apart bool) (steps []string, killed bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CHANGES_TEST_APPLY="+dir, "CHANGES_TEST_STEP="+at)
	if apart {
		cmd.Env = append(cmd.Env, "CHANGES_TEST_APART=1")
	}
	out, err := cmd.Output()
	for l := range strings.Lines(string(out)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(l), "step ")
		if !ok {
			t.Fatalf("at %s: unexpected output %q", at, l)
		}
		steps = append(steps, name)
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if err != nil && (!ok || !exit.Sys().(syscall.WaitStatus).Signaled()) {
		t.Fatalf("at %s: %v", at, err)
	}
	return steps, err != nil
}

// P37: an Apply that is killed at any step leaves all changes or none, once the next start or the
// next Apply has recovered.
func TestApplyIsAllOrNothingWhenKilled(t *testing.T) {
	for _, apart := range []bool{false, true} {
		dir := t.TempDir()
		_, inside := newChangedTree(t, dir)
		steps, killed := applyAndKill(t, dir, "", apart)
		if killed || len(steps) < 12 {
			t.Fatalf("Apply: killed: %v, steps %q, want at least 12", killed, steps)
		}
		after := describeTree(t, inside, false)
		if d := diffTrees(after, describeTree(t, filepath.Join(dir, "host"), false)); d != "" {
			t.Fatalf("not applied:\n%s", d)
		}
		undone, completed := 0, 0
		for i, name := range steps {
			dir := t.TempDir()
			host, _ := newChangedTree(t, dir)
			before := describeTree(t, host, true)
			reached, killed := applyAndKill(t, dir, strconv.Itoa(i), apart)
			if !killed || reached[len(reached)-1] != name {
				t.Fatalf("Apply was not killed at %s: steps %q", name, reached)
			}
			// The recovery is killed in the middle too, and then run again.
			if strings.HasPrefix(name, "op") {
				applyAndKill(t, dir, "undo 4", apart)
			}
			kept, err := changeset.Recover(t.Context(), filepath.Join(dir, "journals"))
			if err != nil || len(kept) > 0 {
				t.Errorf("%s: Recover: got %q, error %v", name, kept, err)
			}
			switch now := describeTree(t, host, true); {
			case diffTrees(before, now) == "":
				undone++
			case diffTrees(after, describeTree(t, host, false)) == "":
				completed++
			default:
				t.Errorf("killed at %s: the tree has only a part of the changes:\n%s", name, diffTrees(before, now))
			}
			for _, pattern := range []string{"host/.crannog*", "journals/*"} {
				if left, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(left) > 0 {
					t.Errorf("killed at %s: files left: %q, error %v", name, left, err)
				}
			}
		}
		if undone < 10 || completed != 1 {
			t.Errorf("got %d undone and %d completed, want 10 or more and 1", undone, completed)
		}
	}
}

// Recover does not overwrite files that the user changed after an Apply was killed.
func TestRecoverKeepsChangesOfOthers(t *testing.T) {
	dir := t.TempDir()
	host, _ := newChangedTree(t, dir)
	if _, killed := applyAndKill(t, dir, "sync", false); !killed {
		t.Fatal("Apply was not killed")
	}
	put(t, filepath.Join(host, "edited"), "by the user")
	kept, err := changeset.Recover(t.Context(), filepath.Join(dir, "journals"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("Recover: got %q, error %v", kept, err)
	}
	if text, err := os.ReadFile(filepath.Join(host, "edited")); err != nil || string(text) != "by the user" {
		t.Errorf("the user's file is %q, %v", text, err)
	}
	found := false
	for _, sub := range []string{"new", "old"} {
		names, err := os.ReadDir(filepath.Join(kept[0], sub))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			text, _ := os.ReadFile(filepath.Join(kept[0], sub, n.Name()))
			found = found || string(text) == "1\n"
		}
	}
	if !found {
		t.Error("the original file is lost")
	}
	if text, err := os.ReadFile(filepath.Join(host, "gone", "other")); err != nil || string(text) != "1" {
		t.Errorf("another file is %q, %v", text, err)
	}
}

// P37: after an error in the middle everything is restored, byte for byte and with its times.
func TestApplyRestoresTreeAfterError(t *testing.T) {
	for _, apart := range []bool{false, true} {
		total := 0
		for i := 0; ; i++ {
			dir := t.TempDir()
			host, inside := newChangedTree(t, dir)
			root, err := os.OpenRoot(host)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			start, err := changeset.Walk(t.Context(), root, changeset.Bounds{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			source := &localSource{dir: inside}
			set, err := changeset.Compare(t.Context(), source, changeset.Base{Start: start, Outside: root}, changeset.Options{Dir: "/workspace"})
			if err != nil {
				t.Fatal(err)
			}
			if i == len(set.Changes) {
				break
			}
			before := describeTree(t, host, true)
			// The user changes one of the files just before it is applied.
			victim := set.Changes[i]
			full := filepath.Join(host, victim.Path)
			if info, err := os.Stat(filepath.Dir(full)); err != nil || !info.IsDir() {
				continue // its directory does not exist yet
			}
			total++
			changed := false
			step := func(name string) {
				if name != "op 0" {
					return
				}
				changed = true
				if victim.Outside == nil {
					put(t, full, "by the user")
				} else {
					remove(t, full)
				}
			}
			o := changeset.Watched(changeset.ApplyOptions{Dir: "/workspace", Journals: filepath.Join(dir, "journals")}, step, apart)
			if _, err := changeset.Apply(t.Context(), source, root, set.Changes, o); fault.CodeOf(err) != "changes_conflict" || !changed {
				t.Fatalf("Apply(%s): error %v", victim.Path, err)
			}
			now := describeTree(t, host, true)
			for name := range now {
				// Only the user's changes, and the times of the directories with them, differ.
				if under(name, victim.Path) || under(victim.Path, name) || name == "." {
					delete(now, name)
					delete(before, name)
				}
			}
			for name := range before {
				if under(name, victim.Path) || under(victim.Path, name) {
					delete(before, name)
				}
			}
			if d := diffTrees(before, now); d != "" {
				t.Errorf("%s was changed concurrently, and the tree is not restored:\n%s", victim.Path, d)
			}
			if left, err := filepath.Glob(filepath.Join(host, ".crannog*")); err != nil || len(left) > 0 {
				t.Errorf("files left: %q, error %v", left, err)
			}
		}
		if total < 12 {
			t.Errorf("tried only %d changes, want at least 12", total)
		}
	}
}

// under reports whether a path is a directory or below it.
func under(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

func TestApplyLocksDirectory(t *testing.T) {
	b := newTreeTest(t, map[string]string{"a": "1"})
	put(t, filepath.Join(b.inside, "a"), "22")
	set := b.compare(t)
	var codes []string
	b.source.packing = func() {
		b.source.packing = nil
		_, err := b.apply(t, set.Changes, false)
		codes = append(codes, fault.CodeOf(err))
		// Recover does not undo an Apply that is still running.
		if kept, err := changeset.Recover(t.Context(), b.journals); err != nil || len(kept) > 0 {
			t.Errorf("Recover: got %q, error %v", kept, err)
		}
	}
	if _, err := b.apply(t, set.Changes, false); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(codes, []string{"apply_running"}) {
		t.Errorf("concurrent Apply: got codes %q, want apply_running", codes)
	}
	b.checkClean(t)
}

// P37: a file that the sandbox changes after it was shown is not applied.
func TestApplyRejectsFilesChangedInside(t *testing.T) {
	for what, change := range map[string]func(b *treeTest){
		"content": func(b *treeTest) { put(t, filepath.Join(b.inside, "a"), "EVIL") },
		"longer":  func(b *treeTest) { put(t, filepath.Join(b.inside, "a"), "GOOD and more") },
		"gone":    func(b *treeTest) { remove(t, filepath.Join(b.inside, "a")) },
		"link": func(b *treeTest) {
			remove(t, filepath.Join(b.inside, "a"))
			writeTree(t, b.inside, map[string]string{"a": "-> b"})
		},
		"dir": func(b *treeTest) {
			remove(t, filepath.Join(b.inside, "a"))
			writeTree(t, b.inside, map[string]string{"a/x": ""})
		},
		"unchanged": func(*treeTest) {},
	} {
		b := newTreeTest(t, map[string]string{"a": "1", "b": "GOOD"})
		put(t, filepath.Join(b.inside, "a"), "GOOD")
		set := b.compare(t)
		before := describeTree(t, b.host, true)
		b.source.packing = func() { change(b) }
		_, err := b.apply(t, set.Changes, false)
		if what == "unchanged" {
			if err != nil {
				t.Errorf("control: %v", err)
			}
			continue
		}
		if fault.CodeOf(err) != "changes_moved" {
			t.Errorf("%s: apply: error %v", what, err)
		}
		if d := diffTrees(before, describeTree(t, b.host, true)); d != "" {
			t.Errorf("%s: the refused Apply has changed files:\n%s", what, d)
		}
		b.checkClean(t)
	}
}

// P37: any change outside after the changes were shown is detected, however small it is.
func TestApplyDetectsChangesOutside(t *testing.T) {
	for what, change := range map[string]func(t *testing.T, b *treeTest, step string){
		"in place, with the old time": func(t *testing.T, b *treeTest, step string) {
			name := filepath.Join(b.host, "a")
			info, err := os.Stat(name)
			if err != nil || step != "stage" {
				return
			}
			put(t, name, "x")
			if err := os.Chtimes(name, info.ModTime(), info.ModTime()); err != nil {
				t.Error(err)
			}
		},
		"a file in a directory that Apply removes": func(t *testing.T, b *treeTest, step string) {
			if step == "op 0" {
				put(t, filepath.Join(b.host, "gone", "theirs"), "by the user")
			}
		},
		"a file in a directory that Apply replaces by a file": func(t *testing.T, b *treeTest, step string) {
			if step == "op 0" {
				put(t, filepath.Join(b.host, "swap", "theirs"), "by the user")
			}
		},
		"a mode": func(t *testing.T, b *treeTest, step string) {
			if step == "op 0" {
				if err := os.Chmod(filepath.Join(b.host, "a"), 0o600); err != nil {
					t.Error(err)
				}
			}
		},
	} {
		b := newTreeTest(t, map[string]string{"a": "1", "gone/x": "1", "swap/x": "1", "z": "1"})
		put(t, filepath.Join(b.inside, "a"), "22")
		put(t, filepath.Join(b.inside, "z"), "22")
		remove(t, filepath.Join(b.inside, "gone"))
		remove(t, filepath.Join(b.inside, "swap"))
		put(t, filepath.Join(b.inside, "swap"), "22")
		set := b.compare(t)
		var expected map[string]string
		step := func(name string) {
			change(t, b, name)
			if name == "op 0" {
				expected = describeTree(t, b.host, false)
			}
		}
		o := changeset.Watched(changeset.ApplyOptions{Dir: "/workspace", Journals: b.journals}, step, false)
		if _, err := changeset.Apply(t.Context(), b.source, b.root, set.Changes, o); fault.CodeOf(err) != "changes_conflict" {
			t.Errorf("%s: Apply: error %v", what, err)
		}
		now := describeTree(t, b.host, false)
		for name := range expected {
			if strings.HasPrefix(name, ".crannog-apply-") {
				delete(expected, name)
			}
		}
		if d := diffTrees(expected, now); expected != nil && d != "" {
			t.Errorf("%s: the refused Apply has changed files:\n%s", what, d)
		}
		b.checkClean(t)
	}
}
