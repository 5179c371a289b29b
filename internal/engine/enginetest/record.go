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

// eventFile is a file of events, and the events that were read from it so far.
type eventFile struct {
	f    *os.File
	r    *events.Reader
	read []events.Event
}

// newEvents creates an empty file of events.
func newEvents(t testing.TB) *eventFile {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "events"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &eventFile{f: f, r: events.NewReader(f, 0, 0)}
}

// readNew reads and returns the events that were added since the last call.
func (v *eventFile) readNew(t testing.TB) []events.Event {
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
			t.Errorf("events are missing: %+v", e)
		}
		v.read = append(v.read, e)
	}
}

// startObserved starts an observed sandbox.
func (c *Config) startObserved(t testing.TB, e engine.Engine, change ...func(*engine.Spec)) (*testSandbox, *eventFile) {
	t.Helper()
	v := newEvents(t)
	b := c.start(t, e, append([]func(*engine.Spec){func(s *engine.Spec) { s.Events = v.f }}, change...)...)
	return b, v
}

// writeEvents makes the engine write all pending events.
func writeEvents(t testing.TB, b *testSandbox) {
	t.Helper()
	if err := b.e.(engine.Observer).Survey(t.Context(), b.id); err != nil {
		t.Fatalf("survey: %v", err)
	}
}

// surveyNew makes a survey and returns the events since the last call.
func (v *eventFile) surveyNew(t testing.TB, b *testSandbox) []events.Event {
	t.Helper()
	writeEvents(t, b)
	return v.readNew(t)
}

// filter returns the events of a kind that match.
func filter(all []events.Event, kind events.Kind, matches func(events.Event) bool) []events.Event {
	return slices.DeleteFunc(slices.Clone(all), func(e events.Event) bool { return e.Kind != kind || !matches(e) })
}

// hasProgram matches the executions of a program by its base name.
func hasProgram(name string) func(events.Event) bool {
	return func(e events.Event) bool { return filepath.Base(e.Program) == name }
}

// hasArgument matches the executions of programs with an argument.
func hasArgument(word string) func(events.Event) bool {
	return func(e events.Event) bool { return slices.Contains(e.Argv, word) }
}

// anyEvent matches every event.
func anyEvent(events.Event) bool { return true }

// exitOf returns the exit event of a process.
func exitOf(t testing.TB, all []events.Event, pid int) events.Event {
	t.Helper()
	found := filter(all, events.Exit, func(e events.Event) bool { return e.PID == pid })
	if len(found) != 1 {
		t.Fatalf("process %d has %d exit events, want 1", pid, len(found))
	}
	return found[0]
}

var recordRules = slices.Concat(recordProgramRules, recordFileRules, recordStateRules, recordCallRules, recordLimitRules)

var recordProgramRules = []rule{
	// P32 of docs/reference/promises.md
	{"record/each-program-is-recorded-once", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b, v := c.startObserved(t, e)
		cwd := "/home/user"
		if len(e.Info().Unseen) > 0 {
			cwd = "" // such an observer does not see it
		}
		v.surveyNew(t, b)
		const n = 1000
		b.want(t, fmt.Sprintf(`i=0; while [ $i -lt %d ]; do /bin/true "number $i"; i=$((i+1)); done; echo $i`, n), fmt.Sprint(n))
		got := v.surveyNew(t, b)
		execs := filter(got, events.Exec, hasProgram("true"))
		if len(execs) != n {
			t.Fatalf("%d programs were recorded, want %d", len(execs), n)
		}
		shells := filter(got, events.Exec, func(e events.Event) bool { return len(e.Argv) > 2 && e.Argv[1] == "-c" })
		if all := filter(got, events.Exec, anyEvent); len(shells) != 1 || len(all) != n+1 {
			t.Fatalf("%d shells and %d programs in all were recorded, want 1 and %d", len(shells), len(all), n+1)
		}
		for i, e := range execs {
			if e.Argv[1] != fmt.Sprintf("number %d", i) || e.Parent != shells[0].PID || e.Command != shells[0].PID || e.UID != 1000 || e.Cwd != cwd {
				t.Fatalf("the event of program %d is %+v", i, e)
			}
			if end := exitOf(t, got, e.PID); end.Command != e.Command || end.Took <= 0 {
				t.Fatalf("the exit event of program %d: %+v", i, end)
			}
		}
		if end := exitOf(t, got, shells[0].PID); end.Command != end.PID || end.Code != 0 {
			t.Errorf("the exit event of the shell: %+v", end)
		}
	}},
	// P32 of docs/reference/promises.md
	{"record/variables-have-no-values", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()))
		// The control: the value is in the program's environment.
		b.want(t, `TOKEN=hidden-$((40+2))-value; export TOKEN; exec /usr/bin/printenv TOKEN`, "hidden-42-value")
		var text []byte
		for _, e := range v.surveyNew(t, b) {
			text = e.AppendTo(text)
		}
		if !strings.Contains(string(text), `"TOKEN"`) || strings.Contains(string(text), "hidden-42") {
			t.Errorf("the events must contain the name and not the value of a variable: %s", text)
		}
	}},
	// P32 of docs/reference/promises.md
	{"record/ends-have-codes-and-signals", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()))
		b.want(t, `/bin/sh -c 'exit 7' seven; /bin/sh -c 'kill -9 $$' nine; /usr/bin/python3 -c 'import os,ctypes; ctypes.CDLL(None).syscall(60, 5)' five; echo`, "")
		got := v.surveyNew(t, b)
		for word, want := range map[string][2]int{"seven": {7, 0}, "nine": {0, 9}, "five": {5, 0}} {
			execs := filter(got, events.Exec, hasArgument(word))
			if len(execs) != 1 {
				t.Fatalf("the program with the argument %s has %d events, want 1", word, len(execs))
			}
			if end := exitOf(t, got, execs[0].PID); end.Code != want[0] || end.Signal != want[1] {
				t.Errorf("the exit event of the program %s is %+v, want the code %d and the signal %d", word, end, want[0], want[1])
			}
		}
	}},
	// P32 of docs/reference/promises.md
	{"record/orphans-belong-to-their-command", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()))
		b.want(t, `setsid sh -c '(sleep 0.3; exec /bin/true orphan) & ' >/dev/null 2>&1; echo $$ > pid; echo`, "")
		hosttest.Eventually(t, "the orphan runs", func() bool {
			v.readNew(t)
			return len(filter(v.read, events.Exec, hasArgument("orphan"))) == 1
		})
		pid := number(t, b.sh(t, "cat pid").stdout)
		if e := filter(v.read, events.Exec, hasArgument("orphan"))[0]; e.Command != pid || e.Parent == pid {
			t.Errorf("the orphan belongs to %+v, want the command %d and another parent", e, pid)
		}
	}},
	// P32 of docs/reference/promises.md
	{"record/long-arguments-are-cut", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()))
		b.want(t, `/bin/true long $(head -c 100000 /dev/zero | tr '\0' x); /bin/true many $(seq 1000); echo`, "")
		got := v.surveyNew(t, b)
		for _, word := range []string{"long", "many"} {
			execs := filter(got, events.Exec, hasArgument(word))
			if len(execs) != 1 || !execs[0].Cut || len(strings.Join(execs[0].Argv, "")) > 8<<10 || len(execs[0].Argv) > 64 {
				t.Errorf("the program with the argument %s has %d events, want one with cut arguments", word, len(execs))
			}
		}
	}},
	// P32 of docs/reference/promises.md
	{"record/a-full-file-refuses-programs-until-it-is-freed", func(t testing.TB, c *Config) {
		const size = 64 << 10
		b, v := c.startObserved(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.EventBytes = size })
		r := b.sh(t, `i=0; while [ $i -lt 2000 ]; do /bin/true || { echo refused; exit 1; }; i=$((i+1)); done`)
		// The event file may be full when the program is executed, or when its process is created.
		noProgram := r.code == 1 && strings.Contains(r.stdout, "refused")
		noProcess := r.code == 2 && strings.Contains(r.stderr, "Cannot fork")
		if !noProgram && !noProcess {
			t.Fatalf("programs run although the event file is full: %+v", r)
		}
		if _, err := b.exec(t.Context(), "user", "/bin/true"); err == nil {
			t.Error("a command runs that was not recorded")
		}
		before := len(v.read)
		v.readNew(t)
		ran := filter(v.read[before:], events.Exec, hasProgram("true"))
		if err := events.Free(v.f, v.r.Offset()); err != nil {
			t.Fatal(err)
		}
		b.want(t, "echo again", "again")
		v.readNew(t)
		if len(ran) == 0 || v.read[len(v.read)-1].Seq != uint64(len(v.read)) {
			t.Errorf("%d programs ran, and %d events were read, want some of each without a gap", len(ran), len(v.read))
		}
	}},
	// P32 of docs/reference/promises.md
	{"record/unsupported-observation-is-refused", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b, _ := c.startObserved(t, e)
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
			t.Error("a file that is not opened for appending is accepted")
			_ = e.Remove(context.Background(), spec.ID)
		}
	}},
}
