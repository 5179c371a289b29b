package changeset_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// treeGenerator creates and changes trees at random.
type treeGenerator struct {
	t *testing.T
	r *rand.Rand
}

// baseNames are names of files, with special characters.
var baseNames = []string{"a", "b", "c", "with space", "ümläut", "quo\"te", "new\nline", "tab\t", "-dash", "ba\\ck", "x.go", "no\xfftext", "é", "e\u0301", "a.b", "A"}

// name returns a random path.
func (g treeGenerator) name(dirs []string) string {
	base := baseNames[g.r.IntN(len(baseNames))]
	if g.r.IntN(3) == 0 {
		base += fmt.Sprint(g.r.IntN(5))
	}
	return path.Join(dirs[g.r.IntN(len(dirs))], base)
}

// text returns random lines.
func (g treeGenerator) text() string {
	var b strings.Builder
	for range g.r.IntN(30) {
		fmt.Fprintf(&b, "line %d\n", g.r.IntN(8))
	}
	switch g.r.IntN(6) {
	case 0:
		return strings.TrimSuffix(b.String(), "\n")
	case 1:
		return b.String() + "\r\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n"
	}
	return b.String()
}

// split returns the directories of a tree, and its other entries.
func (g treeGenerator) split(dir string) (dirs, files []string) {
	dirs = []string{""}
	all := describeTree(g.t, dir, false)
	for _, name := range slices.Sorted(maps.Keys(all)) { // in a fixed order, so that a seed determines the tree
		if all[name][0] == 'd' {
			dirs = append(dirs, name)
		} else {
			files = append(files, name)
		}
	}
	return dirs, files
}

// must fails the test after an error.
func (g treeGenerator) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// dirMode returns a mode. For root it may be one that denies the owner access.
func (g treeGenerator) dirMode() os.FileMode {
	modes := []os.FileMode{0o755, 0o700, 0o750, 0o555, 0o511}
	if os.Geteuid() != 0 {
		modes = modes[:3]
	}
	return modes[g.r.IntN(len(modes))]
}

// mutate makes n random changes.
func (g treeGenerator) mutate(dir string, n int, binary bool) {
	for range n {
		dirs, files := g.split(dir)
		full := filepath.Join(dir, g.name(dirs))
		_, err := os.Lstat(full)
		exists := err == nil
		switch k := g.r.IntN(14); {
		case k < 3 && !exists:
			g.must(os.Mkdir(full, g.dirMode()))
		case k == 3 && !exists:
			g.must(os.Symlink([]string{"a", "b/c", "no such", "./x"}[g.r.IntN(4)], full))
		case k == 4 && len(files) > 0:
			g.must(os.Remove(filepath.Join(dir, files[g.r.IntN(len(files))])))
		case k == 5 && len(dirs) > 4:
			g.must(os.RemoveAll(filepath.Join(dir, dirs[1+g.r.IntN(len(dirs)-1)])))
		case k == 6 && len(files) > 0:
			if name := filepath.Join(dir, files[g.r.IntN(len(files))]); describeTree(g.t, name, true)["."][0] != 'L' {
				g.must(os.Chmod(name, []os.FileMode{0o644, 0o755, 0o600}[g.r.IntN(3)]))
			}
		case k == 7 && len(files) > 0 && !exists:
			g.must(os.Rename(filepath.Join(dir, files[g.r.IntN(len(files))]), full))
		case k == 8 && exists:
			g.must(os.RemoveAll(full)) // and create another file there
			if g.r.IntN(2) == 0 {
				g.must(os.Mkdir(full, 0o755))
			} else {
				g.must(os.WriteFile(full, []byte(g.text()), 0o644))
			}
		case k == 9 && len(dirs) > 1:
			g.must(os.Chmod(filepath.Join(dir, dirs[1+g.r.IntN(len(dirs)-1)]), g.dirMode()))
		default:
			if exists {
				g.must(os.RemoveAll(full))
			}
			text := g.text()
			if binary && g.r.IntN(4) == 0 {
				text += "\x00\xff"
			}
			g.must(os.WriteFile(full, []byte(text), []os.FileMode{0o644, 0o755, 0o600}[g.r.IntN(3)]))
		}
	}
}

// changedTrees returns a host directory, and a sandbox with a changed copy of it.
func (g treeGenerator) changedTrees(n int, binary bool) *treeTest {
	b := newTreeTest(g.t, nil)
	g.mutate(b.host, n, binary)
	g.must(os.RemoveAll(b.inside))
	b.start(g.t)
	g.mutate(b.inside, n, binary)
	return b
}

// P37: after Apply the host's tree equals the sandbox's tree, for all kinds of changes.
func TestApplyMakesTreesEqual(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { applyEqual(t, seed) })
	}
}

func FuzzApplyMakesTreesEqual(f *testing.F) {
	f.Add(uint64(1000))
	f.Fuzz(applyEqual)
}

func applyEqual(t *testing.T, seed uint64) {
	b := treeGenerator{t, rand.New(rand.NewPCG(seed, 1))}.changedTrees(40, true)
	set := b.compare(t)
	now, err := b.apply(t, set.Changes, false)
	if err != nil {
		t.Fatalf("%v\n%q", err, summaries(set))
	}
	if d := diffTrees(describeTree(t, b.inside, false), describeTree(t, b.host, false)); d != "" {
		t.Errorf("inside and outside differ:\n%s", d)
	}
	b.checkClean(t)
	// The next comparison finds no changes.
	b.base.Brought = now
	if again := b.compare(t); len(again.Changes) > 0 {
		t.Errorf("still changed: %q", summaries(again))
	}
}

// git apply and patch both apply all changes that a patch can contain.
func TestPatchMakesTreesEqual(t *testing.T) {
	hosttest.Need(t, hosttest.Git)
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := treeGenerator{t, rand.New(rand.NewPCG(seed, 2))}
			b := g.changedTrees(30, false)
			set := b.compare(t)
			staged := b.stage(t, set)
			var patch bytes.Buffer
			left, err := changeset.WritePatch(t.Context(), &patch, staged, b.base, set.Changes, b.source.Redactor, changeset.Bounds{})
			g.must(err)
			for _, c := range left {
				if (c.New == nil || c.New.Type != changeset.Dir) && (c.Old == nil || c.Old.Type != changeset.Dir) &&
					(!c.SameContent || c.Old.Mode&0o100 != c.New.Mode&0o100) {
					t.Errorf("left out %s %q", c.Op, c.Path)
				}
			}
			// git ignores a directory without files. Such a directory may be at the path of a file.
			for _, c := range slices.Backward(left) {
				if c.Op == changeset.Removed {
					_ = os.Remove(filepath.Join(b.host, c.Path)) // if it is empty
				}
			}
			if patch.Len() == 0 || !strings.Contains(patch.String(), "diff --git") {
				return
			}
			cmd := exec.Command("git", "apply", "-p1", "-")
			cmd.Dir, cmd.Stdin, cmd.Env = b.host, bytes.NewReader(patch.Bytes()), append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(b.host))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("git apply: %v\n%s\n%s", err, out, patch.String())
			}
			if d := diffTrees(gitView(describeTree(t, b.inside, false)), gitView(describeTree(t, b.host, false))); d != "" {
				t.Errorf("inside and outside differ:\n%s\n%s", d, patch.String())
			}
		})
	}
}

// gitView returns a tree as git sees it: without directories, and with the executable bit as the
// only mode.
func gitView(all map[string]string) map[string]string {
	seen := map[string]string{}
	for name, text := range all {
		if text[0] == 'd' {
			continue
		}
		mode, rest, _ := strings.Cut(text, " ")
		if mode[0] != 'L' {
			mode = mode[3:4]
		}
		seen[name] = mode + rest
	}
	return seen
}
