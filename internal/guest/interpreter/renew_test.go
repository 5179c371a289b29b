package interpreter

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// change sets variables of the sandbox, like a new configuration.
func (b *testServer) change(values map[string]string) {
	env := maps.Clone(b.env)
	maps.Copy(env, values)
	b.setEnv(env)
}

// randomCode is code that sets known seeds, if the language has seeds, and code that prints random
// values.
var randomCode = map[string]struct{ begin, draw string }{
	"python":     {"import random; random.seed(7); mine = random.Random(7)", "print(random.random(), mine.random())"},
	"javascript": {"", "console.log(Math.random())"},
	"bash":       {"RANDOM=7", "echo $RANDOM $RANDOM $RANDOM"},
	"r":          {"set.seed(7)", "cat(runif(2))"},
	"java":       {"", "System.out.println(Math.random())"},
}

// A copy gets other random values than its source. A resumed sandbox continues its random streams.
func TestCopyGetsNewRandomValues(t *testing.T) {
	for name, code := range randomCode {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needLanguage(t, name)
			seen := map[string]bool{}
			for _, fresh := range []bool{false, true, true} {
				b := newTestServer(t)
				b.t = t
				b.run(payload{"language": name, "code": code.begin}).wantOK(t)
				b.server.Renew(Renewal{Home: b.home, Fresh: fresh})
				o := b.run(payload{"language": name, "code": code.draw}).wantOK(t)
				if o.count != 2 || len(o.stdout) < 4 || seen[o.stdout] {
					t.Errorf("execution %d got the random values %q, want new ones", o.count, o.stdout)
				}
				seen[o.stdout] = true
			}
			// Without a renewal, a known seed always gives the same values.
			if code.begin == "" {
				return
			}
			b := newTestServer(t)
			b.t = t
			b.run(payload{"language": name, "code": code.begin}).wantOK(t)
			if o := b.run(payload{"language": name, "code": code.draw}).wantOK(t); !seen[o.stdout] {
				t.Errorf("without a renewal: got %q, want the values of the seed", o.stdout)
			}
		})
	}
}

func needNumpy(t *testing.T) {
	t.Helper()
	hosttest.Need(t, hosttest.Requirement{Name: "numpy", Has: func() bool {
		o := newTestServer(t).python("import importlib.util; importlib.util.find_spec('numpy') is not None")
		return o.text() == "True"
	}})
}

func TestCopyReseedsNumpy(t *testing.T) {
	b := newTestServer(t)
	needNumpy(t)
	b.python("import numpy as np\nnp.random.seed(7); mine = np.random.default_rng(7); old = np.random.RandomState(7)").wantOK(t)
	b.server.Renew(Renewal{Home: b.home, Fresh: true})
	code := "[g == h for g, h in zip([np.random.random(), mine.random(), old.random_sample()], [np.random.RandomState(7).random_sample(), np.random.default_rng(7).random(), np.random.RandomState(7).random_sample()])]"
	if got := b.python(code).wantOK(t).text(); got != "[False, False, False]" {
		t.Errorf("generators that continue after the renewal: got %s, want none", got)
	}
}

// The random functions that replace those of JavaScript behave like the originals.
func TestReplacedJavaScriptRandomFunctionsWork(t *testing.T) {
	b := newTestServer(t)
	b.run(payload{"language": "js", "code": "var c = require('crypto')"}).wantOK(t)
	b.server.Renew(Renewal{Home: b.home, Fresh: true})
	for code, want := range map[string]string{
		"[c.randomBytes(3).length, c.randomBytes(0).length]":                                                     "[ 3, 0 ]",
		"[c.randomInt(5, 6), c.randomInt(1), c.randomInt(-3, -2)]":                                               "[ 5, 0, -3 ]",
		"new Set(Array.from({length: 500}, () => c.randomInt(3))).size":                                          "3",
		"/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(c.randomUUID())":           "true",
		"crypto.randomUUID() !== crypto.randomUUID()":                                                            "true",
		"const a = new Uint16Array(8); c.randomFillSync(a, 2, 4); [a[0], a[1], a[6], a[7], a.some(x => x)]":      "[ 0, 0, 0, 0, true ]",
		"crypto.getRandomValues(new Uint8Array(64)).some(x => x)":                                                "true",
		"await new Promise((r) => c.randomBytes(4, (e, b) => r([e, b.length])))":                                 "[ null, 4 ]",
		"await new Promise((r) => c.randomInt(1, (e, n) => r([e, n])))":                                          "[ undefined, 0 ]",
		"await new Promise((r) => c.randomFill(new Uint8Array(32), 1, (e, b) => r([e, b[0], b.some(x => x)])))":  "[ null, 0, true ]",
		"(await import('node:crypto')).randomBytes === c.randomBytes":                                            "true",
		"try { c.randomBytes(-1) } catch (e) { e.code }":                                                         "ERR_OUT_OF_RANGE",
		"const m = Array.from({length: 1000}, Math.random); [m.every(x => x >= 0 && x < 1), new Set(m).size]":    "[ true, 1000 ]",
		"const h = Array.from({length: 4000}, Math.random); h.reduce((x, y) => x + y) / 4000 > 0.45 && h.length": "4000",
		"/native/.test(Math.random) || /native/.test(c.randomBytes)":                                             "false",
	} {
		if got := b.run(payload{"language": "js", "code": code}).wantOK(t).text(); got != want {
			t.Errorf("value of %s: got %s, want %s", code, got, want)
		}
	}
}

// Variables reach contexts that have run code, unless the code has changed them.
func TestRenewalChangesVariables(t *testing.T) {
	for name, code := range map[string]struct{ set, show string }{
		"python": {
			"import os; x = 1; os.environ['MINE'] = 'code'",
			"print(os.environ.get('MINE'), os.environ.get('GONE'), os.environ.get('SAME'), os.environ.get('NEW'), x)",
		},
		"javascript": {
			"x = 1; process.env.MINE = 'code'",
			"console.log(process.env.MINE, process.env.GONE ?? 'None', process.env.SAME, process.env.NEW, x)",
		},
		"bash": {
			"x=1; MINE=code",
			`echo $MINE ${GONE-None} $(sh -c 'echo $SAME $NEW') $x; (exit 3)`,
		},
		"r": {
			"x <- 1; Sys.setenv(MINE = 'code')",
			"cat(Sys.getenv('MINE'), Sys.getenv('GONE', 'None'), Sys.getenv('SAME'), Sys.getenv('NEW'), x); invisible()",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needLanguage(t, name)
			b := newTestServer(t)
			b.t = t
			b.change(map[string]string{"MINE": "before", "GONE": "before", "SAME": "it's \\ \"before\""})
			b.run(payload{"language": name, "code": code.set}).wantOK(t)
			b.change(map[string]string{"MINE": "after", "SAME": "it's\n'after'", "NEW": "new", "1 bad": "x", "not-a-name": "y"})
			b.dropEnv("GONE")
			b.server.Renew(Renewal{Home: b.home})
			o := b.run(payload{"language": name, "code": code.show})
			want := "code None it's\n'after' new 1\n"
			if name == "bash" {
				want = "code None it's 'after' new 1\n"
			}
			if strings.Join(strings.Fields(o.stdout), " ") != strings.Join(strings.Fields(want), " ") || o.count != 2 {
				t.Errorf("variables in execution %d: got %q, want %q", o.count, o.stdout, want)
			}
		})
	}
}

// A preloaded worker that has not run code gets the new directory and variables. Apart from its PID
// it behaves like a new worker.
func TestPreloadedWorkerIsRenewed(t *testing.T) {
	for name, show := range map[string]string{
		"python":     "import os; print(os.getcwd(), os.environ['E2B_SANDBOX_ID'], os.getpid())",
		"javascript": "console.log(process.cwd(), process.env.E2B_SANDBOX_ID, process.pid)",
		"bash":       "echo $PWD $E2B_SANDBOX_ID $$",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestServer(t)
			b.t = t
			b.change(map[string]string{"E2B_SANDBOX_ID": "waiting"})
			if err := b.server.Preload(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			waiting := b.pid(name)
			work := filepath.Join(b.home, "work")
			if err := os.Mkdir(work, 0o755); err != nil {
				t.Fatal(err)
			}
			b.change(map[string]string{"E2B_SANDBOX_ID": "claimed"})
			b.server.Renew(Renewal{Home: work, Fresh: true})
			o := b.run(payload{"language": name, "code": show}).wantOK(t)
			if want := work + " claimed " + waiting + "\n"; o.stdout != want || o.count != 1 {
				t.Errorf("execution %d: got %q, want %q", o.count, o.stdout, want)
			}
			if _, list := b.call("GET", "/contexts", nil); !strings.Contains(list, work) {
				t.Errorf("contexts: got %s, want the new directory %s", list, work)
			}
		})
	}
}

// A preloaded worker is replaced if a variable changes that programs read only when they start.
func TestPreloadedWorkerIsReplacedIfStartVariablesChange(t *testing.T) {
	b := newTestServer(t)
	if err := b.server.Preload(t.Context(), "python"); err != nil {
		t.Fatal(err)
	}
	waiting := b.pid("python")
	b.change(map[string]string{"PYTHONHASHSEED": "5", "TZ": "Asia/Tokyo"})
	b.server.Renew(Renewal{Home: b.home})
	if got := b.python("import os, time; print(os.getpid(), time.tzname)").wantOK(t).stdout; strings.HasPrefix(got, waiting) || !strings.Contains(got, "JST") {
		t.Errorf("got %q, want another worker than %s", got, waiting)
	}
}

func TestPreloadLeavesNoTrace(t *testing.T) {
	loaded, plain := newTestServer(t), newTestServer(t)
	if err := loaded.server.Preload(t.Context(), "python"); err != nil {
		t.Fatal(err)
	}
	const code = "x = 1\nsorted(globals())"
	if got, want := loaded.python(code).wantOK(t).text(), plain.python(code).wantOK(t).text(); got != want {
		t.Errorf("global names after Preload: got %s, want %s", got, want)
	}
	if err := loaded.server.Preload(t.Context(), "cobol"); err == nil {
		t.Error("Preload of an unknown language returned no error")
	}
	loaded.change(map[string]string{"PATH": "/nonexistent"})
	if err := loaded.server.Preload(t.Context(), "bash"); err != nil {
		t.Errorf("Preload of a language that is not installed: %v", err)
	}
}

func TestPreloadLoadsUsualLibraries(t *testing.T) {
	needNumpy(t)
	b := newTestServer(t)
	if err := b.server.Preload(t.Context(), "python"); err != nil {
		t.Fatal(err)
	}
	if got := b.python("import sys; 'numpy' in sys.modules").wantOK(t).text(); got != "True" {
		t.Error("numpy is not loaded")
	}
}

// Code whose connection the sandbox closed continues. Code whose client disconnected is
// interrupted, see TestDisconnectInterruptsAndKeepsState.
func TestCutOffCodeContinues(t *testing.T) {
	b := newTestServer(t)
	release := filepath.Join(b.home, "mark")
	code := "print('go', flush=True)\nimport os, time\nwhile not os.path.exists(" + quotePython(release) + "): time.sleep(0.01)\nx = 'continued'"
	_, disconnect := b.begin(payload{"code": code})
	b.server.Sever()
	disconnect()
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := b.python("x").wantOK(t).text(); got != "continued" {
		t.Errorf("value of x: got %q, want continued", got)
	}
}

func quotePython(s string) string { return "'" + s + "'" }

func TestChangesBetweenEnvironments(t *testing.T) {
	got := changes(map[string]string{"A": "1", "B": "1", "C": "1"}, map[string]string{"B": "1", "C": "2", "D": "3"})
	if len(got) != 3 || got["A"].To != nil || *got["C"].From != "1" || *got["C"].To != "2" || got["D"].From != nil {
		t.Errorf("changes: got %+v", got)
	}
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, []string{"A", "C", "D"}) {
		t.Errorf("changed variables: got %v", keys)
	}
}

// pid returns the PID of the worker of a default context.
func (b *testServer) pid(language string) string {
	b.t.Helper()
	sess, err := b.server.byLanguage(language)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := sess.acquire(b.t.Context(), func() time.Duration { return time.Minute }); err != nil {
		b.t.Fatal(err)
	}
	defer sess.release()
	return sess.worker.proc.(plainProcess).pid()
}
