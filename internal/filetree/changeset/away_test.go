package changeset_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/filetree/changeset"
)

// P37: if a directory is missing at the next start, such as one on a disk that is attached later,
// it is restored once it is back.
func TestRecoverRestoresReturnedDirectory(t *testing.T) {
	for what, meanwhile := range map[string]func(t *testing.T, host string){
		"nothing":           func(*testing.T, string) {},
		"another directory": func(t *testing.T, host string) { writeTree(t, host, map[string]string{"theirs": "1"}) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			host, _ := newChangedTree(t, dir)
			before := describeTree(t, host, true)
			if _, killed := applyAndKill(t, dir, "op 5", false); !killed {
				t.Fatal("Apply was not killed")
			}
			if diffTrees(before, describeTree(t, host, false)) == "" {
				t.Fatal("control: the killed Apply has changed nothing")
			}
			elsewhere := filepath.Join(dir, "elsewhere")
			move(t, host, elsewhere)
			meanwhile(t, host)
			for range 2 {
				if kept, err := changeset.Recover(t.Context(), filepath.Join(dir, "journals")); err != nil || len(kept) > 0 {
					t.Errorf("Recover without the directory: got %q, error %v", kept, err)
				}
			}
			remove(t, host)
			move(t, elsewhere, host)
			if kept, err := changeset.Recover(t.Context(), filepath.Join(dir, "journals")); err != nil || len(kept) > 0 {
				t.Errorf("Recover: got %q, error %v", kept, err)
			}
			if d := diffTrees(before, describeTree(t, host, true)); d != "" {
				t.Errorf("the directory was not restored:\n%s", d)
			}
			if left, err := filepath.Glob(filepath.Join(dir, "journals", "*")); err != nil || len(left) > 0 {
				t.Errorf("journals left: %q, error %v", left, err)
			}
		})
	}
}

// If the files that a killed Apply set aside were removed, nothing can be restored, and that does
// not stop another Apply.
func TestApplyWorksAfterStageWasRemoved(t *testing.T) {
	dir := t.TempDir()
	host, _ := newChangedTree(t, dir)
	if _, killed := applyAndKill(t, dir, "op 5", false); !killed {
		t.Fatal("Apply was not killed")
	}
	stages, err := filepath.Glob(filepath.Join(host, ".crannog-apply-*"))
	if err != nil || len(stages) != 1 {
		t.Fatalf("Glob: got %q, error %v", stages, err)
	}
	remove(t, stages[0])
	if _, killed := applyAndKill(t, dir, "", false); killed {
		t.Fatal("Apply was killed")
	}
	if left, err := filepath.Glob(filepath.Join(dir, "journals", "*")); err != nil || len(left) > 0 {
		t.Errorf("journals left: %q, error %v", left, err)
	}
}

// move renames a file or directory.
func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
