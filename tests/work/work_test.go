// Package work_test does real work in real boxes: the programs of a public
// benchmark, and the test suites of small projects in three languages.
package work_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/hosttest"
)

func TestMain(m *testing.M) {
	crannog.Main()
	os.Exit(m.Run())
}

// local opens an engine in this process on a state directory of its own.
func local(t *testing.T) *crannog.Client {
	t.Helper()
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	client, err := crannog.Local(t.Context(), crannog.State(t.TempDir()),
		crannog.Logger(slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// problem is one program of the benchmark.
type problem struct {
	TaskID     string `json:"task_id"`
	Prompt     string `json:"prompt"`
	Solution   string `json:"canonical_solution"`
	Test       string `json:"test"`
	EntryPoint string `json:"entry_point"`
}

// problems reads the benchmark from CRANNOG_HUMANEVAL, or from where it lies
// beside the repository. The repository does not hold it.
func problems(t *testing.T) []problem {
	t.Helper()
	path := os.Getenv("CRANNOG_HUMANEVAL")
	if path == "" {
		path = "../../../shared/data/HumanEval.jsonl.gz"
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CRANNOG_HUMANEVAL") == "" {
		t.Logf("no HumanEval.jsonl.gz: set CRANNOG_HUMANEVAL to its path; three programs stand in for it")
		return builtin
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var out []problem
	lines := bufio.NewScanner(plain)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var p problem
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	if err := lines.Err(); err != nil || len(out) != 164 {
		t.Fatalf("%d programs, %v; the benchmark has 164", len(out), err)
	}
	return out
}

// builtin are three programs in the benchmark's form.
var builtin = []problem{
	{"own/1", "def double(x):\n", "    return 2 * x\n", "def check(f):\n    assert f(21) == 42\n", "double"},
	{"own/2", "def words(s):\n", "    return s.split()\n", "def check(f):\n    assert f('a b') == ['a', 'b']\n", "words"},
	{"own/3", "def total(xs):\n", "    return sum(xs)\n", "def check(f):\n    assert f(range(5)) == 10\n", "total"},
}

func (p problem) program() string {
	return p.Prompt + p.Solution + "\n" + p.Test + "\ncheck(" + p.EntryPoint + ")\nprint('passed')\n"
}

// Every program passes its own tests, in a box of its own, eight at a time,
// and no box is left.
func TestHumanEval(t *testing.T) {
	client := local(t)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	began := time.Now()
	all := problems(t)
	for _, p := range all {
		group.Go(func() error {
			out, err := solve(ctx, client, p.program())
			if err != nil || strings.TrimSpace(out) != "passed" {
				t.Errorf("%s: %q %v", p.TaskID, out, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d programs in %v", len(all), time.Since(began).Round(time.Millisecond))
	left, err := client.List(t.Context(), crannog.ListOptions{})
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func solve(ctx context.Context, client *crannog.Client, program string) (string, error) {
	sb, err := client.Create(ctx, crannog.Ephemeral(), crannog.Timeout(5*time.Minute))
	if err != nil {
		return "", err
	}
	defer sb.Kill(context.WithoutCancel(ctx))
	cmd := sb.CommandContext(ctx, "python3", "-")
	cmd.Stdin = strings.NewReader(program)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A wrong program must fail, or the test above proves nothing.
func TestHumanEvalControl(t *testing.T) {
	p := problems(t)[0]
	out, err := solve(t.Context(), local(t), p.Prompt+"    return None\n\n"+p.Test+"\ncheck("+p.EntryPoint+")\nprint('passed')\n")
	if err == nil || strings.Contains(out, "passed") {
		t.Errorf("a wrong solution passed: %q %v", out, err)
	}
}

// projects are small repositories with tests of their own.
var projects = []struct {
	name  string
	files map[string]string
	cmd   []string
	want  string
	needs hosttest.Ability
}{
	{"python", map[string]string{
		"shop/__init__.py":   "def price(n):\n    return n * 3\n",
		"tests/__init__.py":  "",
		"tests/test_shop.py": "import unittest, shop\nclass T(unittest.TestCase):\n    def test_price(self):\n        self.assertEqual(shop.price(2), 6)\n",
	}, []string{"python3", "-m", "unittest", "-v"}, "OK", hosttest.Python},
	{"node", map[string]string{
		"package.json":  `{"name":"shop","type":"module","scripts":{"test":"node --test"}}`,
		"shop.js":       "export const price = n => n * 3\n",
		"shop.test.js":  "import test from 'node:test'\nimport assert from 'node:assert'\nimport { price } from './shop.js'\ntest('price', () => assert.equal(price(2), 6))\n",
		".npmrc":        "update-notifier=false\n",
		"README.md":     "# shop\n",
		"sub/dir/x.txt": "x\n",
	}, []string{"npm", "test"}, "# pass 1", hosttest.Node},
	{"go", map[string]string{
		"go.mod":       "module shop\n\ngo 1.21\n",
		"shop.go":      "package shop\n\nfunc Price(n int) int { return n * 3 }\n",
		"shop_test.go": "package shop\n\nimport \"testing\"\n\nfunc TestPrice(t *testing.T) {\n\tif Price(2) != 6 {\n\t\tt.Fatal(Price(2))\n\t}\n}\n",
	}, []string{"/usr/local/go/bin/go", "test", "./..."}, "ok", hosttest.Ability{Name: "Go in /usr/local/go", Has: func() bool {
		_, err := os.Stat("/usr/local/go/bin/go")
		return err == nil
	}}},
}

// A project's own tests run on its directory, which does not change.
func TestProjects(t *testing.T) {
	for _, p := range projects {
		t.Run(p.name, func(t *testing.T) {
			hosttest.Need(t, p.needs)
			client := local(t)
			dir := t.TempDir()
			for name, text := range p.files {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			sb, err := client.Create(t.Context(), crannog.Workspace(dir), crannog.Ephemeral(), crannog.Timeout(10*time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			defer sb.Kill(context.WithoutCancel(t.Context()))
			cmd := sb.CommandContext(t.Context(), p.cmd[0], p.cmd[1:]...)
			cmd.Dir = "/workspace"
			cmd.Env = []string{"GOFLAGS=-mod=mod", "GOTOOLCHAIN=local", "GOPROXY=off", "CGO_ENABLED=0"}
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), p.want) {
				t.Errorf("%v: %s", err, out)
			}
			count := 0
			err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
				if !d.IsDir() {
					count++
				}
				return err
			})
			if err != nil || count != len(p.files) {
				t.Errorf("the directory holds %d files, it had %d (%v)", count, len(p.files), err)
			}
		})
	}
}
