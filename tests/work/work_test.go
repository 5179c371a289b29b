// Package work_test does real work in real sandboxes: the programs of a public benchmark, and tests
// and linters of small projects in three languages.
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

// program is the real one.
var program string

func TestMain(m *testing.M) {
	crannog.Main()
	os.Exit(servetest.Main(m, &program))
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

// size is how many programs the benchmark has.
const size = 164

// standIn names the tests that run our own programs instead of the benchmark's, so that no reader
// mistakes the one for the other.
const standIn = "NOT-HumanEval-but-%d-programs-that-stand-in"

// problems reads the benchmark from CRANNOG_HUMANEVAL, or from its place beside the repository,
// which does not include it. It also returns a name for a test of these programs.
func problems(t *testing.T) (all []problem, what string) {
	t.Helper()
	path := os.Getenv("CRANNOG_HUMANEVAL")
	if path == "" {
		path = "../../../shared/data/HumanEval.jsonl.gz"
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CRANNOG_HUMANEVAL") == "" {
		t.Logf("NOT HumanEval: there is no HumanEval.jsonl.gz; set CRANNOG_HUMANEVAL to its path. %d programs of our own stand in for its %d", len(builtin), size)
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
	if err := lines.Err(); err != nil || len(all) != size {
		t.Fatalf("%d programs, %v; the benchmark has %d", len(all), err, size)
	}
	return all, fmt.Sprintf("HumanEval-%d", size)
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

// Every program passes its own tests, each in a sandbox, eight at a time, and no sandbox is left.
func TestHumanEval(t *testing.T) {
	all, what := problems(t)
	t.Run(what, func(t *testing.T) { solveAll(t, all) })
}

func solveAll(t *testing.T, all []problem) {
	client := local(t)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	began := time.Now()
	var passed sync.Map // by its name, so that none counts twice
	for _, p := range all {
		group.Go(func() error {
			out, err := solve(ctx, client, p.program())
			if err != nil || strings.TrimSpace(out) != "passed" {
				t.Errorf("%s: %q %v", p.TaskID, out, err)
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
		t.Errorf("%d programs passed, of %d", n, len(all))
	}
	left, err := client.List(t.Context(), crannog.ListOptions{})
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

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

// Control: a wrong program must fail, or the test above proves nothing.
func TestHumanEvalControl(t *testing.T) {
	all, _ := problems(t)
	p := all[0]
	out, err := solve(t.Context(), local(t), p.Prompt+"    return None\n\n"+p.Test+"\ncheck("+p.EntryPoint+")\nprint('passed')\n")
	if err == nil || strings.Contains(out, "passed") {
		t.Errorf("a wrong solution passed: %q %v", out, err)
	}
}
