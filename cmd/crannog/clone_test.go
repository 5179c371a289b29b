package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// repository is the root of the repository, two levels above this package.
const repository = "../.."

// buildOutputs are the names of directories that make and npm write, which are not committed.
var buildOutputs = []string{"bin", "node_modules", "dist", "kernel", ".git"}

// cloneRepository clones the repository and returns the clone's path. Without a git history, it
// copies the files instead, except build outputs.
func cloneRepository(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "crannog")
	clone := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "clone", "--quiet", repository, dir)
	out, err := clone.CombinedOutput()
	if err == nil {
		return dir
	}
	t.Logf("git clone failed, so the files are copied: %v %s", err, out)
	err = filepath.WalkDir(repository, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(repository, name)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		switch {
		case d.IsDir() && slices.Contains(buildOutputs, d.Name()):
			// The program embeds the README.md of such a directory.
			if err := os.MkdirAll(to, 0o755); err != nil {
				return err
			}
			readme, err := os.ReadFile(filepath.Join(name, "README.md"))
			if err == nil {
				err = os.WriteFile(filepath.Join(to, "README.md"), readme, 0o644)
			}
			if err != nil && !os.IsNotExist(err) {
				return err
			}
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(to, 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPlainBuildOfAFreshClone builds the program from the committed files alone: without make,
// generated files and the console. With test-full, the build uses C code if the machine has a C
// compiler.
func TestPlainBuildOfAFreshClone(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Git)
	dir := cloneRepository(t)
	here, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"CGO_ENABLED", "GOFLAGS", "GOOS", "GOARCH"}, name)
	})
	// With C code almost every package is compiled once more, so only make test-full does it.
	// make check tests the gateway's process, the one part that differs, with C code (test-plain).
	if !hosttest.Full() {
		env = append(env, "CGO_ENABLED=0")
	}
	runInClone := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, append(env, "CRANNOG_STATE="+t.TempDir())
		var stderr bytes.Buffer
		cmd.Stderr = &stderr // crannog run lists there the host files that are not visible inside
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s%s", name, args, err, out, stderr.String())
		}
		return string(out)
	}
	// In a mount namespace of its own the clone is at the path of this repository. The path is part
	// of what go build caches, so only packages are compiled whose committed files differ from
	// those that make has built.
	program := filepath.Join(t.TempDir(), "crannog")
	const build = `mount --bind . "$1" && cd "$1" && exec go build -o "$2" ./cmd/crannog`
	runInClone("unshare", "--mount", "--propagation", "private", "sh", "-c", build, "sh", here, program)
	if out := runInClone(program, "run", "--", "python3", "-c", "print(6*7)"); out != "42\n" {
		t.Errorf("crannog run printed %q, want %q", out, "42\n")
	}
}
