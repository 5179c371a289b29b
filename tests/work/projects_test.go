package work_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// project is a small repository with its own tests, and commands to run on it.
type project struct {
	name         string
	requirements []hosttest.Requirement
	files        map[string]string
	// broken are files that make a test and a linter fail.
	broken map[string]string
	// prepare adds files to the directories that the host has built.
	prepare  func(t *testing.T, dirs ...string)
	commands []projectCommand
}

// projectCommand is a command, with its results on the project and on the broken one.
type projectCommand struct {
	cmd       []string
	good, bad outcome
}

// outcome is the result of a command.
type outcome struct {
	code        int
	outputParts []string // parts of the output; nil means no output
}

// goRoot is the directory of Go in sandboxes, whose PATH may differ from the test's.
const goRoot = "/usr/local/go/bin/"

var goTools = hosttest.Requirement{Name: "Go in /usr/local/go", Has: func() bool {
	_, err := os.Stat(goRoot + "go")
	return err == nil
}}

var goFiles = map[string]string{
	"go.mod":       "module shop\n\ngo 1.21\n",
	"shop.go":      "// Package shop sells.\npackage shop\n\nimport \"fmt\"\n\n// Price is what n cost.\nfunc Price(n int) int { return n * 3 }\n\n// Tag is what a price looks like.\nfunc Tag(n int) string { return fmt.Sprintf(\"%d\", Price(n)) }\n",
	"shop_test.go": "package shop\n\nimport \"testing\"\n\nfunc TestPrice(t *testing.T) {\n\tif Price(2) != 6 {\n\t\tt.Fatal(Price(2))\n\t}\n}\n",
}

// compileLibrary gives each directory a build cache with the standard library, whose compilation
// takes most of the time.
func compileLibrary(t *testing.T, dirs ...string) {
	t.Helper()
	projectDir, cache := t.TempDir(), t.TempDir()
	write(t, projectDir, goFiles)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", goRoot+"go vet ./... && "+goRoot+"go test -vet=off ./...")
	cmd.Dir = projectDir
	cmd.Env = append(os.Environ(), "GOCACHE="+cache, "GOFLAGS=", "GOTOOLCHAIN=local", "GOPROXY=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compile the standard library: %v\n%s", err, out)
	}
	for _, dir := range dirs {
		if err := os.CopyFS(filepath.Join(dir, ".gocache"), os.DirFS(cache)); err != nil {
			t.Fatal(err)
		}
	}
}

// checkFailed is an exit code that neither a test runner nor the product uses.
const checkFailed = 43

// goCheck is a typical check of a Go project's Makefile. Its go test runs without vet, which would
// stop before the broken test.
const goCheck = "export GOCACHE=$PWD/.gocache; " + goRoot + "gofmt -l .; " + goRoot + "go vet ./... || echo vet: exit code $?; " + goRoot + "go test -vet=off ./..."

var projects = []project{
	{
		name: "python", requirements: []hosttest.Requirement{hosttest.Python},
		files: map[string]string{
			"shop/__init__.py":   "def price(n):\n    return n * 3\n",
			"tests/__init__.py":  "",
			"tests/test_shop.py": "import unittest, shop\nclass T(unittest.TestCase):\n    def test_price(self):\n        self.assertEqual(shop.price(2), 6)\n",
			"check.py":           fmt.Sprintf("import sys, unittest\nresult = unittest.main(module='tests.test_shop', exit=False).result\nsys.exit(0 if result.wasSuccessful() else %d)\n", checkFailed),
		},
		broken: map[string]string{
			"shop/__init__.py": "def price(n):\n    return n * 4\n",
			"shop/draft.py":    "def later(:\n",
		},
		commands: []projectCommand{
			{cmd: []string{"python3", "-m", "unittest", "-v"}, good: outcome{0, []string{"OK"}}, bad: outcome{1, []string{"AssertionError: 8 != 6"}}},
			{cmd: []string{"python3", "check.py"}, good: outcome{0, []string{"OK"}}, bad: outcome{checkFailed, []string{"FAILED (failures=1)"}}},
			{cmd: []string{"python3", "-m", "compileall", "-q", "."}, good: outcome{0, nil}, bad: outcome{1, []string{"SyntaxError"}}},
		},
	},
	{
		name: "node", requirements: []hosttest.Requirement{hosttest.Node},
		files: map[string]string{
			"package.json":  `{"name":"shop","type":"module","scripts":{"test":"node --test","lint":"node --check shop.js"}}`,
			"shop.js":       "export const price = n => n * 3\n",
			"shop.test.js":  "import test from 'node:test'\nimport assert from 'node:assert'\nimport { price } from './shop.js'\ntest('price', () => assert.equal(price(2), 6))\n",
			".npmrc":        "update-notifier=false\n",
			"README.md":     "# shop\n",
			"sub/dir/x.txt": "x\n",
		},
		broken: map[string]string{"shop.js": "export const price = n => n *\n"},
		commands: []projectCommand{
			{cmd: []string{"npm", "test"}, good: outcome{0, []string{"# pass 1"}}, bad: outcome{1, []string{"# fail 1"}}},
			{cmd: []string{"npm", "run", "-s", "lint"}, good: outcome{0, nil}, bad: outcome{1, []string{"SyntaxError"}}},
		},
	},
	{
		name: "go", requirements: []hosttest.Requirement{goTools}, prepare: compileLibrary,
		files: goFiles,
		broken: map[string]string{
			"shop_test.go": "package shop\n\nimport \"testing\"\n\nfunc TestPrice(t *testing.T) {\n\tif Price(2) != 7 {\n\t\tt.Fatal(Price(2))\n\t}\n}\n",
			"tag.go":       "package shop\n\nimport \"fmt\"\n\nfunc  Label(n int) string { return fmt.Sprintf(\"%s\", n) }\n",
		},
		commands: []projectCommand{
			{cmd: []string{"sh", "-c", goCheck}, good: outcome{0, []string{"ok"}}, bad: outcome{1, []string{"tag.go", "Sprintf format %s has arg n of wrong type int", "vet: exit code 1", "--- FAIL: TestPrice"}}},
		},
	},
}

// P13: a project's own tests and linters run on its directory, with their own results. P4: the
// directory does not change, whatever they write.
func TestProjects(t *testing.T) {
	for _, p := range projects {
		t.Run(p.name, func(t *testing.T) {
			hosttest.Need(t, append([]hosttest.Requirement{hosttest.Root}, p.requirements...)...)
			state := t.TempDir()
			good, bad := t.TempDir(), t.TempDir()
			write(t, good, p.files)
			write(t, bad, p.files)
			write(t, bad, p.broken)
			if p.prepare != nil {
				p.prepare(t, good, bad)
			}
			initial := map[string]map[string]string{good: snapshotDir(t, good), bad: snapshotDir(t, bad)}
			for _, w := range p.commands {
				check(t, state, good, w.cmd, w.good)
				check(t, state, bad, w.cmd, w.bad)
			}
			// Control: a command sees its own changes of the directory.
			check(t, state, good, []string{"sh", "-c", "find . -mindepth 1 -delete; echo mine > README.md; find . -type f"}, outcome{0, []string{"./README.md"}})
			for dir, before := range initial {
				if after := snapshotDir(t, dir); !maps.Equal(before, after) {
					t.Errorf("the directory %s changed: got\n%v\nwant\n%v", dir, after, before)
				}
			}
			servetest.NothingLeft(t, state)
		})
	}
}

// check runs a command in a sandbox of a directory, as a user would, and compares its result.
func check(t *testing.T, state, dir string, command []string, want outcome) {
	t.Helper()
	args := slices.Concat([]string{"run", "--tools=none", "-e", "GOTOOLCHAIN=local", "-e", "GOPROXY=off", "-e", "CGO_ENABLED=0", "--"}, command)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CRANNOG_STATE="+state)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	text := string(out)
	missing := slices.DeleteFunc(slices.Clone(want.outputParts), func(part string) bool { return strings.Contains(text, part) })
	if code := cmd.ProcessState.ExitCode(); code != want.code || len(missing) > 0 || want.outputParts == nil && text != "" {
		t.Errorf("%q: exit %d, want %d; %q is missing:\n%s", command, code, want.code, missing, text)
	}
}

// write creates files.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// snapshotDir returns the modes, times and contents of all files of a directory.
func snapshotDir(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all[path] = fmt.Sprint(info.Mode(), info.ModTime())
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all[path] += fmt.Sprintf(" %x", sha256.Sum256(data))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
