// Package work_test runs real programs in real sandboxes: those of a public benchmark, and the
// tests and linters of small projects in three languages.
package work_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// program is the path of the real program.
var program string

func TestMain(m *testing.M) {
	crannog.Main()
	os.Exit(servetest.Main(m, &program))
}

// local opens the product in this process with its own state directory.
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

// benchmarkSize is the number of programs in the benchmark.
const benchmarkSize = 164

// standIn is the name of tests that run built-in programs instead of the benchmark's, so that no
// reader takes one for the other.
const standIn = "NOT-HumanEval-but-%d-programs-that-stand-in"

// problems reads the benchmark from CRANNOG_HUMANEVAL, or from its place beside the repository,
// which does not include it. It also returns a name for the test.
func problems(t *testing.T) (all []problem, name string) {
	t.Helper()
	path := os.Getenv("CRANNOG_HUMANEVAL")
	if path == "" {
		path = "../../../shared/data/HumanEval.jsonl.gz"
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CRANNOG_HUMANEVAL") == "" {
		t.Logf("NOT HumanEval: there is no HumanEval.jsonl.gz; set CRANNOG_HUMANEVAL to its path. %d built-in programs run instead of its %d", len(builtin), benchmarkSize)
		return builtin, fmt.Sprintf(standIn, len(builtin))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(plain)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var p problem
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if err := lines.Err(); err != nil || len(all) != benchmarkSize {
		t.Fatalf("got %d programs, %v, want %d", len(all), err, benchmarkSize)
	}
	return all, fmt.Sprintf("HumanEval-%d", benchmarkSize)
}

// builtin are three programs in the benchmark's form.
var builtin = []problem{
	{"own/1", "def double(x):\n", "    return 2 * x\n", "def check(f):\n    assert f(21) == 42\n", "double"},
	{"own/2", "def words(s):\n", "    return s.split()\n", "def check(f):\n    assert f('a b') == ['a', 'b']\n", "words"},
	{"own/3", "def total(xs):\n", "    return sum(xs)\n", "def check(f):\n    assert f(range(5)) == 10\n", "total"},
}

// program returns the text of a program that tests itself.
func (p problem) program() string {
	return p.Prompt + p.Solution + "\n" + p.Test + "\ncheck(" + p.EntryPoint + ")\nprint('passed')\n"
}

// TestHumanEval checks that every program passes its own tests. Each runs in a sandbox, eight at a
// time, and no sandbox is left.
func TestHumanEval(t *testing.T) {
	all, name := problems(t)
	t.Run(name, func(t *testing.T) { solveAll(t, all) })
}

func solveAll(t *testing.T, all []problem) {
	client := local(t)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	began := time.Now()
	var passed sync.Map // by name, so that no program counts twice
	for _, p := range all {
		group.Go(func() error {
			out, err := solve(ctx, client, p.program())
			if err != nil || strings.TrimSpace(out) != "passed" {
				t.Errorf("the program %s: got %q, %v, want passed", p.TaskID, out, err)
				return nil
			}
			passed.Store(p.TaskID, true)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	n := 0
	passed.Range(func(any, any) bool { n++; return true })
	t.Logf("%d programs passed, in %v", n, time.Since(began).Round(time.Millisecond))
	if n != len(all) {
		t.Errorf("got %d passed programs, want %d", n, len(all))
	}
	left, err := client.List(t.Context(), crannog.ListOptions{})
	if err != nil || len(left) != 0 {
		t.Errorf("sandboxes are left: %v %v", left, err)
	}
}

// solve runs a program in a new sandbox and returns its output.
func solve(ctx context.Context, client *crannog.Client, program string) (string, error) {
	sb, err := client.Create(ctx, crannog.Ephemeral(), crannog.Timeout(5*time.Hour))
	if err != nil {
		return "", err
	}
	defer sb.Kill(context.WithoutCancel(ctx))
	cmd := sb.CommandContext(ctx, "python3", "-")
	cmd.Stdin = strings.NewReader(program)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestHumanEvalControl checks that a wrong program fails.
func TestHumanEvalControl(t *testing.T) {
	all, _ := problems(t)
	p := all[0]
	out, err := solve(t.Context(), local(t), p.Prompt+"    return None\n\n"+p.Test+"\ncheck("+p.EntryPoint+")\nprint('passed')\n")
	if err == nil || strings.Contains(out, "passed") {
		t.Errorf("a wrong solution passed: %q %v", out, err)
	}
}
