package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/hosttest"
)

// repository is where this test's package lies two levels below.
const repository = "../.."

var checkout = hosttest.Ability{Name: "git checkout that these tests are in (a tree without .git cannot be cloned)", Has: func() bool {
	return exec.CommandContext(context.Background(), "git", "-C", repository, "rev-parse", "--verify", "HEAD").Run() == nil
}}

// What is committed is all that a build needs: no make, no generated file, no
// console, with a C compiler's packages and without.
func TestPlainBuildOfAFreshClone(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Git, checkout)
	clone := filepath.Join(t.TempDir(), "crannog")
	in := func(dir string, env []string, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	env := os.Environ()
	in(repository, env, "git", "clone", "--quiet", ".", clone)
	// Plain is what somebody has who sets nothing: this machine's C compiler, if
	// there is one, decides.
	plain := slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"CGO_ENABLED", "GOFLAGS", "GOOS", "GOARCH"}, name)
	})
	for _, way := range []struct {
		name string
		env  []string
	}{{"plain", plain}, {"without cgo", append(slices.Clone(plain), "CGO_ENABLED=0")}} {
		t.Run(way.name, func(t *testing.T) {
			in(clone, way.env, "go", "build", "./cmd/crannog")
			run := append(slices.Clone(way.env), "CRANNOG_STATE="+t.TempDir())
			if out := in(clone, run, "./crannog", "run", "--", "python3", "-c", "print(6*7)"); out != "42\n" {
				t.Errorf("it prints %q", out)
			}
		})
	}
}
