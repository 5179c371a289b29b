package images_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// recipes are the Dockerfiles in images/, each with a command to run in its image.
var recipes = map[string]struct{ line, want string }{
	"python": {`python -c 'print(6*7)' && pip --version | cut -d' ' -f1`, "42\npip\n"},
	"node":   {`node -p 6*7 && npm --version >/dev/null && echo npm`, "42\nnpm\n"},
	"debian": {`id -un; sudo id -un; git --version | cut -d' ' -f1-2`, "user\nroot\ngit version\n"},
	"go":     {`cd /tmp && printf 'package main\nfunc main() { println(6*7) }\n' >a.go && go run a.go 2>&1`, "42\n"},
}

// TestBootstrap creates a Debian image from the mirror's packages, and builds the recipes on it.
func TestBootstrap(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for user, uid := range map[string]int{"root": 0, "without root": unprivileged} {
		t.Run(user, func(t *testing.T) {
			m := newMachine(t, uid)
			// With an explicit mirror, the image's list of sources names only one suite, which the
			// policy permits.
			if out, err := m.run(t, "", "image", "bootstrap", "--mirror", "http://"+mirror+"/debian/", "-t", "debian:test", "--include", "login", "--progress", "plain"); err != nil {
				t.Fatalf("bootstrap: %v\n%s", err, out)
			}
			for _, task := range []struct{ what, line, want string }{
				{"owners", `stat -c '%U:%G %a %n' /etc/shadow /usr/bin/su /var/mail /etc/passwd`, "root:shadow 640 /etc/shadow\nroot:root 4755 /usr/bin/su\nroot:mail 2775 /var/mail\nroot:root 644 /etc/passwd\n"},
				{"packages are installed", `dpkg --audit; dpkg -l | grep -c '^ii *apt '; test ! -e /debs; ls /etc/ssl/certs/ca-certificates.crt`, "1\n/etc/ssl/certs/ca-certificates.crt\n"},
				{"accounts", `useradd -m bob && su - bob -c 'id -un'`, "bob\n"},
			} {
				if out, err := m.inside(t, task.line); err != nil || !strings.HasSuffix(out, task.want) {
					t.Errorf("%s: %v, got %q, want %q at its end", task.what, err, out, task.want)
				}
			}
			if uid != 0 {
				return // without root, a large installation in a build reaches the memory limit of its sandbox
			}
			for name, r := range recipes {
				t.Run(name, func(t *testing.T) { testRecipe(t, m, name, r.line, r.want) })
			}
			t.Run("code-interpreter", func(t *testing.T) { testCodeInterpreter(t, m) })
		})
	}
}

// testRecipe builds a recipe, and runs a shell line in its image.
func testRecipe(t *testing.T, m *machine, name, line, want string) {
	m.build(t, "made:"+name, name)
	if out, err := m.run(t, "", "run", "--no-workspace", "--image", "made:"+name, "--", "sh", "-ec", line); err != nil || !strings.HasSuffix(out, want) {
		t.Errorf("%v, got %q, want %q at its end", err, out, want)
	}
}

// build builds a recipe on the Debian image.
func (m *machine) build(t *testing.T, tag, name string, flags ...string) {
	t.Helper()
	args := append([]string{"template", "build", "-t", tag, "--build-arg", "BASE=debian:test", "--policy", m.policy, "--net", "policy", "--progress", "plain"}, flags...)
	out, err := m.run(t, "", append(args, m.recipe(t, name))...)
	if err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
}

// buildWithMemory creates a Debian image and builds on it a recipe that saves its memory, and
// returns the state directory.
func buildWithMemory(t *testing.T, name string, flags ...string) string {
	t.Helper()
	m := newMachine(t, 0)
	data, err := json.Marshal(map[string]any{"policy": "v1", "network": map[string]any{"hosts": []any{
		reading(t, mirror, 80, "/debian/**", "/debian-security/**"),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.policy, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := m.run(t, "", "image", "bootstrap", "-t", "debian:test", "--progress", "plain"); err != nil {
		t.Fatalf("bootstrap: %v\n%s", err, out)
	}
	m.build(t, name, name, flags...)
	out, err := m.run(t, "", "template", "inspect", name)
	if err != nil || !strings.Contains(strings.ReplaceAll(out, " ", ""), `"has_memory":true`) {
		t.Fatalf("the template has no memory: %v\n%s", err, out)
	}
	return m.state()
}
