package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// eventFile is a file of events, with the events that were read so far.
type eventFile struct {
	f    *os.File
	r    *events.Reader
	read []events.Event
}

func newEvents(t testing.TB) *eventFile {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "events"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &eventFile{f: f, r: events.NewReader(f, 0, 0)}
}

// more reads the events that were added.
func (v *eventFile) more(t testing.TB) []events.Event {
	t.Helper()
	from := len(v.read)
	for {
		e, err := v.r.Next()
		if errors.Is(err, io.EOF) {
			return v.read[from:]
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == events.Gap {
			t.Errorf("gap: %+v", e)
		}
		v.read = append(v.read, e)
	}
}

// watched starts an observed sandbox.
func (c *Config) watched(t testing.TB, e engine.Engine, change ...func(*engine.Spec)) (*testSandbox, *eventFile) {
	t.Helper()
	v := newEvents(t)
	b := c.start(t, e, append([]func(*engine.Spec){func(s *engine.Spec) { s.Events = v.f }}, change...)...)
	return b, v
}

// writeEvents makes the engine write the pending events.
func writeEvents(t testing.TB, b *testSandbox) {
	t.Helper()
	if err := b.e.(engine.Observer).Survey(t.Context(), b.id); err != nil {
		t.Fatalf("survey: %v", err)
	}
}

// seen returns the events since the last call, after a survey.
func (v *eventFile) seen(t testing.TB, b *testSandbox) []events.Event {
	t.Helper()
	writeEvents(t, b)
	return v.more(t)
}

func only(all []events.Event, kind events.Kind, fits func(events.Event) bool) []events.Event {
	return slices.DeleteFunc(slices.Clone(all), func(e events.Event) bool { return e.Kind != kind || !fits(e) })
}

func program(name string) func(events.Event) bool {
	return func(e events.Event) bool { return filepath.Base(e.Program) == name }
}

// marked finds programs by an argument that only they have.
func marked(word string) func(events.Event) bool {
	return func(e events.Event) bool { return slices.Contains(e.Argv, word) }
}

func anyEvent(events.Event) bool { return true }

// exitOf returns the exit event of a process.
func exitOf(t testing.TB, all []events.Event, pid int) events.Event {
	t.Helper()
	found := only(all, events.Exit, func(e events.Event) bool { return e.PID == pid })
	if len(found) != 1 {
		t.Fatalf("%d ends of process %d", len(found), pid)
	}
	return found[0]
}

var recordRules = slices.Concat(recordProgramRules, recordFileRules, recordStateRules, recordCallRules, recordLimitRules)

var recordProgramRules = []rule{
	// P32
	{"record/each-program-is-recorded-once", func(t testing.TB, c *Config) {
		b, v := c.watched(t, c.Open(t, t.TempDir()))
		v.seen(t, b)
		const n = 1000
		b.want(t, fmt.Sprintf(`i=0; while [ $i -lt %d ]; do /bin/true "number $i"; i=$((i+1)); done; echo $i`, n), fmt.Sprint(n))
		got := v.seen(t, b)
		execs := only(got, events.Exec, program("true"))
		if len(execs) != n {
			t.Fatalf("%d of %d programs", len(execs), n)
		}
		shells := only(got, events.Exec, func(e events.Event) bool { return len(e.Argv) > 2 && e.Argv[1] == "-c" })
		if all := only(got, events.Exec, anyEvent); len(shells) != 1 || len(all) != n+1 {
			t.Fatalf("%d shells, %d programs in all", len(shells), len(all))
		}
		for i, e := range execs {
			if e.Argv[1] != fmt.Sprintf("number %d", i) || e.Parent != shells[0].PID || e.Command != shells[0].PID || e.UID != 1000 || e.Cwd != "/home/user" {
				t.Fatalf("program %d: %+v", i, e)
			}
			if end := exitOf(t, got, e.PID); end.Command != e.Command || end.Took <= 0 {
				t.Fatalf("end of %d: %+v", i, end)
			}
		}
		if end := exitOf(t, got, shells[0].PID); end.Command != end.PID || end.Code != 0 {
			t.Errorf("end of the shell: %+v", end)
		}
	}},
	// P32
	{"record/variables-have-no-values", func(t testing.TB, c *Config) {
		b, v := c.watched(t, c.Open(t, t.TempDir()))
		// The positive control: the value is in the program's environment.
		b.want(t, `TOKEN=hidden-$((40+2))-value; export TOKEN; exec /usr/bin/printenv TOKEN`, "hidden-42-value")
		var text []byte
		for _, e := range v.seen(t, b) {
			text = e.AppendTo(text)
		}
		if !strings.Contains(string(text), `"TOKEN"`) || strings.Contains(string(text), "hidden-42") {
			t.Errorf("names without values: %s", text)
		}
	}},
	// P32
	{"record/ends-have-codes-and-signals", func(t testing.TB, c *Config) {
		b, v := c.watched(t, c.Open(t, t.TempDir()))
		b.want(t, `/bin/sh -c 'exit 7' seven; /bin/sh -c 'kill -9 $$' nine; /usr/bin/python3 -c 'import os,ctypes; ctypes.CDLL(None).syscall(60, 5)' five; echo`, "")
		got := v.seen(t, b)
		for word, want := range map[string][2]int{"seven": {7, 0}, "nine": {0, 9}, "five": {5, 0}} {
			execs := only(got, events.Exec, marked(word))
			if len(execs) != 1 {
				t.Fatalf("%s: %d programs", word, len(execs))
			}
			if end := exitOf(t, got, execs[0].PID); end.Code != want[0] || end.Signal != want[1] {
				t.Errorf("%s: %+v", word, end)
			}
		}
	}},
	// P32
	{"record/orphans-belong-to-their-command", func(t testing.TB, c *Config) {
		b, v := c.watched(t, c.Open(t, t.TempDir()))
		b.want(t, `setsid sh -c '(sleep 0.3; exec /bin/true orphan) & ' >/dev/null 2>&1; echo $$ > pid; echo`, "")
		hosttest.Eventually(t, "the orphan runs", func() bool {
			v.more(t)
			return len(only(v.read, events.Exec, marked("orphan"))) == 1
		})
		pid := number(t, b.sh(t, "cat pid").stdout)
		if e := only(v.read, events.Exec, marked("orphan"))[0]; e.Command != pid || e.Parent == pid {
			t.Errorf("command %d: %+v", pid, e)
		}
	}},
	// P32
	{"record/long-arguments-are-cut", func(t testing.TB, c *Config) {
		b, v := c.watched(t, c.Open(t, t.TempDir()))
		b.want(t, `/bin/true long $(head -c 100000 /dev/zero | tr '\0' x); /bin/true many $(seq 1000); echo`, "")
		got := v.seen(t, b)
		for _, word := range []string{"long", "many"} {
			execs := only(got, events.Exec, marked(word))
			if len(execs) != 1 || !execs[0].Cut || len(strings.Join(execs[0].Argv, "")) > 8<<10 || len(execs[0].Argv) > 64 {
				t.Errorf("%s: %d programs", word, len(execs))
			}
		}
	}},
	// P32
	{"record/a-full-file-refuses-programs-until-it-is-freed", func(t testing.TB, c *Config) {
		const size = 64 << 10
		b, v := c.watched(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.EventBytes = size })
		r := b.sh(t, `i=0; while [ $i -lt 2000 ]; do /bin/true || { echo refused; exit 1; }; i=$((i+1)); done`)
		// The disk may be full either for the program or for its process.
		noProgram := r.code == 1 && strings.Contains(r.stdout, "refused")
		noProcess := r.code == 2 && strings.Contains(r.stderr, "Cannot fork")
		if !noProgram && !noProcess {
			t.Fatalf("a loop is not stopped: %+v", r)
		}
		if _, err := b.exec(t.Context(), "user", "/bin/true"); err == nil {
			t.Error("a command runs that was not recorded")
		}
		before := len(v.read)
		v.more(t)
		ran := only(v.read[before:], events.Exec, program("true"))
		if err := events.Free(v.f, v.r.Offset()); err != nil {
			t.Fatal(err)
		}
		b.want(t, "echo again", "again")
		v.more(t)
		if len(ran) == 0 || v.read[len(v.read)-1].Seq != uint64(len(v.read)) {
			t.Errorf("%d programs ran, %d events", len(ran), len(v.read))
		}
	}},
	// P32
	{"record/unsupported-observation-is-refused", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b, _ := c.watched(t, e)
		other := c.start(t, e)
		if err := e.(engine.Observer).Survey(t.Context(), other.id); err == nil {
			t.Error("a sandbox that is not observed is surveyed")
		}
		if err := e.(engine.Observer).Survey(t.Context(), newID()); err == nil {
			t.Error("a sandbox that does not exist is surveyed")
		}
		writeEvents(t, b)
		// A descriptor that could overwrite the file's content is refused.
		f, err := os.Create(filepath.Join(t.TempDir(), "events"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		spec := c.spec(newID())
		spec.Events = f
		if err := e.Create(context.Background(), spec); err == nil {
			t.Error("a file that is not opened to append is accepted")
			_ = e.Remove(context.Background(), spec.ID)
		}
	}},
}
