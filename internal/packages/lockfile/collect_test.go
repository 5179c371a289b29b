package lockfile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
)

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func sum(module string) string { return module + " v1.0.0 " + h1(module) + "\n" }

func names(s *Set) (out []string) {
	for _, e := range s.Entries {
		out = append(out, e.Name)
	}
	return out
}

func collect(t *testing.T, dir string) *Set {
	t.Helper()
	s, err := Collect(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Attack: a workspace contains links to other projects, pipes, and packages with lockfiles of
// their own.
func TestCollectStaysInTheProject(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, dir, "go.sum", sum("root"))
	write(t, dir, "a/b/c/d/go.sum", sum("deep"))
	write(t, dir, "a/b/c/d/e/go.sum", sum("too-deep"))
	for _, d := range []string{"node_modules/x", "vendor", ".git", "target", ".venv"} {
		write(t, dir, d+"/go.sum", sum("installed"))
	}
	write(t, outside, "go.sum", sum("outside"))
	for link, to := range map[string]string{"linked": outside, "up": "..", "a/go.sum": filepath.Join(outside, "go.sum"), "a/again": "."} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "yarn.lock"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := collect(t, dir)
	if got, want := names(s), []string{"deep", "root"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if s.Files != 2 || len(s.Skipped) != 1 || s.Skipped[0].File != "a/go.sum" {
		t.Errorf("got %d files and %+v skipped, want 2 and the link", s.Files, s.Skipped)
	}
}

func TestCollectIsDeterministic(t *testing.T) {
	dir := t.TempDir()
	for i := range 40 {
		write(t, dir, fmt.Sprintf("d%02d/go.sum", i), sum(fmt.Sprintf("m%d", i%7))+sum("shared"))
		write(t, dir, fmt.Sprintf("d%02d/package-lock.json", i), "{broken")
	}
	first := collect(t, dir)
	if len(first.Entries) != 8 || first.Files != 40 || len(first.Skipped) != maxSkipped {
		t.Fatalf("got %d entries of %d files and %d skipped, want 8, 40 and %d", len(first.Entries), first.Files, len(first.Skipped), maxSkipped)
	}
	for range 5 {
		if again := collect(t, dir); !reflect.DeepEqual(again, first) {
			t.Fatalf("got %+v, want %+v", again, first)
		}
	}
	text, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	var back Set
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(&back, first) {
		t.Errorf("the set becomes %+v through JSON (%v)", back, err)
	}
}

func TestCollectHasLimits(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "go.sum", sum("a")+strings.Repeat("\n", maxFile))
	for i := range maxFiles + 2 {
		write(t, dir, fmt.Sprintf("d%04d/go.sum", i), sum("b"))
	}
	s := collect(t, dir)
	if !slices.Equal(names(s), []string{"b"}) || s.Files != maxFiles-1 || len(s.Skipped) != 2 {
		t.Errorf("got %q of %d files, skipped %+v", names(s), s.Files, s.Skipped)
	}
	var many strings.Builder
	for i := range 40_000 {
		many.WriteString(sum(fmt.Sprintf("example.com/a-module-with-a-long-name/%d", i)))
	}
	large := t.TempDir()
	write(t, large, "go.sum", many.String())
	if _, err := Collect(t.Context(), large); fault.CodeOf(err) != CodeTooLarge || fault.HintOf(err) == "" {
		t.Errorf("a set larger than a message: got %v, want %s with a hint", err, CodeTooLarge)
	}
}

func TestIndexExplainsWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "go.sum", "a v1.0.0 "+h1("a")+"\na v1.0.0/go.mod "+h1("mod")+"\na v0.9.0/go.mod "+h1("old")+"\n")
	write(t, dir, "yarn.lock", "__metadata:\n")
	x := collect(t, dir).Index()
	module := func(version string) packages.Artifact {
		return packages.Artifact{Ecosystem: packages.Go, Name: "a", Version: version}
	}
	if !x.Has(module("")) || !x.Has(module("v0.9.0")) || x.Has(module("v2.0.0")) || len(x.Digests(module("v0.9.0"))) != 0 || len(x.Digests(module("v0.9.0/go.mod"))) != 1 {
		t.Errorf("a version whose go.mod alone is locked is not found as such: %v", x.Versions(module("")))
	}
	if why := x.Why(packages.NPM); !strings.Contains(why, "yarn.lock") {
		t.Errorf("Why: got %q, want the skipped file", why)
	}
	if why := x.Why(packages.Go); why != "" {
		t.Errorf("Why of another ecosystem: got %q, want nothing", why)
	}
	var none *Set
	for name, c := range map[string]struct {
		x    *Index
		want string
	}{
		"no set": {none.Index(), "without a workspace"}, "no workspace": {None().Index(), "no workspace on the host"}, "no lockfile": {collect(t, t.TempDir()).Index(), "no lockfile"},
	} {
		if why := c.x.Why(packages.Go); !strings.Contains(why, c.want) || c.x.Has(module("")) || c.x.Digests(module("v1.0.0")) != nil {
			t.Errorf("%s: got %q, want a sentence with %q and no package", name, why, c.want)
		}
	}
}
