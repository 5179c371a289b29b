package ingest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/audit/ingest"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

const sandboxID = "box1"

// fixture has event files in a temporary directory, and an audit log in memory.
type fixture struct {
	t    testing.TB
	dir  string
	log  *audittest.Log
	hide func(context.Context, string) (ingest.Redact, error)
}

func newFixture(t testing.TB) *fixture {
	return &fixture{
		t: t, dir: t.TempDir(), log: &audittest.Log{},
		hide: func(context.Context, string) (ingest.Redact, error) {
			return func(s string) string { return strings.ReplaceAll(s, "hunter2", "[hidden]") }, nil
		},
	}
}

// open returns the ingester of one process.
func (r *fixture) open() *ingest.Ingester {
	r.t.Helper()
	s, err := ingest.Open(ingest.Options{
		Audit: r.log, Log: slog.New(slog.NewTextHandler(r.t.Output(), nil)),
		Forms:  []ingest.Form{ingest.Events(filepath.Join(r.dir, "events"), events.Free), ingest.Flows(filepath.Join(r.dir, "net"))},
		Redact: func(ctx context.Context, id string) (ingest.Redact, error) { return r.hide(ctx, id) },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { s.Close() })
	return s
}

// write appends lines to a sandbox's file in the directory sub. A string is written as it is.
func (r *fixture) write(sub string, lines ...any) {
	r.t.Helper()
	f, err := os.OpenFile(filepath.Join(r.dir, sub, sandboxID+".ndjson"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	for _, line := range lines {
		text, ok := line.(string)
		if !ok {
			data, err := json.Marshal(line)
			if err != nil {
				r.t.Fatal(err)
			}
			text = string(data) + "\n"
		}
		if _, err := f.WriteString(text); err != nil {
			r.t.Fatal(err)
		}
	}
}

// exec returns the event of an executed program.
func exec(seq uint64, argv ...string) events.Event {
	return events.Event{Seq: seq, Time: time.Unix(int64(seq), 0), Kind: events.Exec, PID: int(seq), Program: "/bin/x", Argv: argv}
}

func (r *fixture) drain(s *ingest.Ingester, last bool) {
	r.t.Helper()
	if err := s.Drain(r.t.Context(), sandboxID, last); err != nil {
		r.t.Fatal(err)
	}
}

// entries returns the audit log as a list of "kind:at", with the data of gaps.
func (r *fixture) entries() string {
	var out []string
	for _, e := range r.log.Entries() {
		text := fmt.Sprintf("%s:%d", e.Kind, e.At)
		if e.Kind == audit.Gap {
			var g ingest.Gap
			if err := json.Unmarshal(e.Data, &g); err != nil {
				r.t.Fatal(err)
			}
			text += fmt.Sprintf("(%d %s)", g.Lost, g.Reason)
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// want checks the entries of the audit log.
func (r *fixture) want(want string) {
	r.t.Helper()
	if got := r.entries(); got != want {
		r.t.Errorf("the audit log: got\n%s, want\n%s", got, want)
	}
}

func TestLinesBecomeEntriesOnce(t *testing.T) {
	r := newFixture(t)
	s := r.open()
	r.write("events", events.Event{Seq: 1, Kind: events.Began}, exec(2, "a"), events.Event{Seq: 3, Kind: events.Exit, PID: 2, Code: 7},
		events.Event{Seq: 4, Kind: events.File, Path: "/f", Op: events.Created, Type: "file"})
	r.write("net", egress.Record{Seq: 1, Kind: "http", Host: "example.org"})
	const want = "exec:2 exit:3 file:4 flow:1"
	for range 3 {
		r.drain(s, false)
		r.want(want)
	}
	// Another process, and this one after a restart, find nothing to ingest.
	other := r.open()
	r.drain(other, false)
	s.Close()
	r.drain(r.open(), true)
	r.want(want)
	r.write("events", exec(5, "b"))
	r.drain(other, false)
	r.want(want + " exec:5")
	if e := r.log.Entries(audit.Exec)[0]; e.Sandbox != sandboxID || e.Source != "events/"+sandboxID || e.Actor != "box" || !e.Time.Equal(time.Unix(2, 0)) {
		t.Errorf("exec entry: got %+v", e)
	}
}

// When two processes follow a file while lines are written to it, each line becomes one entry, in
// order.
func TestConcurrentFollowersIngestLinesOnce(t *testing.T) {
	r := newFixture(t)
	a, b := r.open(), r.open()
	a.Follow(sandboxID)
	b.Follow(sandboxID)
	const n = 3000
	for i := uint64(1); i <= n; i++ {
		r.write("events", exec(i, "x"))
	}
	deadline := hosttest.Deadline()
	for len(r.log.Entries()) < n && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	r.drain(a, true)
	r.drain(b, true)
	for i, e := range r.log.Entries() {
		if e.Kind != audit.Exec || e.At != uint64(i+1) {
			t.Fatalf("entry %d: got %s:%d, want exec:%d", i, e.Kind, e.At, i+1)
		}
	}
	if got := len(r.log.Entries()); got != n {
		t.Errorf("got %d entries, want %d", got, n)
	}
}

func TestMissingLinesBecomeGap(t *testing.T) {
	r := newFixture(t)
	s := r.open()
	r.write("events", exec(1), exec(4), "{not json}\n", exec(6), exec(5), exec(7), `{"seq":8,"ki`)
	r.drain(s, false)
	const complete = "exec:1 gap:3(2 missing) exec:4 gap:5(1 missing) exec:6 gap:6(1 disorder) exec:7"
	r.want(complete)
	r.drain(s, true)
	r.want(complete + " gap:8(1 cut)")
	// The gap is written once, even if another process reads the file.
	r.drain(r.open(), true)
	r.want(complete + " gap:8(1 cut)")
}

// A new file is read from its beginning, by the process that created it and by others, which must
// look up their position in the audit log.
func TestNewFileIsReadFromBeginning(t *testing.T) {
	r := newFixture(t)
	s := r.open()
	for range 2 { // a second instance of the same sandbox
		f, err := s.Create(sandboxID)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	s.Follow(sandboxID)
	r.write("events", exec(1))
	r.drain(s, false)
	other := r.open()
	f, err := other.Create(sandboxID)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	r.write("events", exec(2))
	r.drain(other, false)
	r.drain(s, true)
	r.want("exec:1 exec:2")
}

// Entries that the audit log rejected are ingested later.
func TestRejectedEntriesAreIngestedLater(t *testing.T) {
	r := newFixture(t)
	s := r.open()
	r.log.Fail(func(audit.Draft) bool { return true })
	r.write("events", exec(1), exec(2))
	if err := s.Drain(t.Context(), sandboxID, true); err == nil {
		t.Error("Drain into a failing audit log returned no error")
	}
	r.want("")
	r.log.Fail(nil)
	r.drain(s, true)
	r.want("exec:1 exec:2")
}

// An entry that the audit log can never accept becomes a gap, and does not block the others.
func TestInvalidEntryBecomesGap(t *testing.T) {
	r := newFixture(t)
	s := r.open()
	r.log.Refuse(func(d audit.Draft) bool { return d.Kind == audit.Exec && d.At == 2 })
	r.write("events", exec(1), exec(2), exec(3))
	r.drain(s, false)
	r.want("exec:1 gap:2(1 refused) exec:3")
	r.drain(s, true)
	r.want("exec:1 gap:2(1 refused) exec:3")
}

// P34: values of secrets are redacted wherever a program can put them. If the values are not known,
// the text is omitted.
func TestSecretValuesAreRedacted(t *testing.T) {
	event := events.Event{
		Seq: 1, Kind: events.Exec, Program: "/hunter2", Argv: []string{"x", "-p", "hunter2"}, Cwd: "/tmp/hunter2", Env: []string{"hunter2"},
	}
	file := events.Event{Seq: 2, Kind: events.File, Path: "/tmp/hunter2", Op: events.Created}
	flow := egress.Record{Seq: 1, Path: "/hunter2", Host: "hunter2", Method: "hunter2", Error: "hunter2"}
	for _, known := range []bool{true, false} {
		r := newFixture(t)
		hide := r.hide
		r.hide = func(ctx context.Context, id string) (ingest.Redact, error) {
			if !known {
				return nil, errors.New("not known")
			}
			return hide(ctx, id)
		}
		s := r.open()
		r.write("events", event, file)
		r.write("net", flow)
		r.drain(s, true)
		for _, e := range r.log.Entries() {
			text := string(e.Data)
			if strings.Contains(text, "hunter2") || strings.Contains(text, "[hidden]") != known || strings.Contains(text, "not known") == known {
				t.Errorf("values known: %t: got entry %s", known, text)
			}
		}
		if len(r.log.Entries()) != 3 {
			t.Errorf("values known: %t: got entries %s, want 3", known, r.entries())
		}
	}
}

// The disk space of ingested lines is released, and the next process continues after them.
func TestSpaceOfIngestedLinesIsFreed(t *testing.T) {
	r := newFixture(t)
	s := r.open()
	long := strings.Repeat("x", 20<<10)
	for i := uint64(1); i <= 200; i++ {
		r.write("events", exec(i, long))
	}
	r.drain(s, false)
	used := func() int64 {
		t.Helper()
		return blocks(t, filepath.Join(r.dir, "events", sandboxID+".ndjson"))
	}
	if got := used(); got > 2<<20 {
		t.Errorf("ingested lines still use %d bytes, want at most 2 MiB", got)
	}
	r.write("events", exec(201), exec(203))
	r.drain(r.open(), true)
	entries := r.log.Entries()
	if n := len(entries); n != 203 || entries[200].At != 201 || entries[201].Kind != audit.Gap || entries[202].At != 203 {
		t.Errorf("got %d entries, want 203 with a gap", n)
	}
}

// A line that is too long for an entry is shortened. A line that is too long to read is a gap.
func TestLongLineIsShortenedOrGap(t *testing.T) {
	r := newFixture(t)
	s := r.open()
	r.write("events", exec(1, strings.Repeat("\x01", 200), strings.Repeat("y", 150<<10), strings.Repeat("z", 100<<10)), strings.Repeat("w", 3<<20)+"\n", exec(3))
	r.drain(s, true)
	r.want("exec:1 gap:2(1 missing) exec:3")
	var x ingest.Exec
	if err := json.Unmarshal(r.log.Entries(audit.Exec)[0].Data, &x); err != nil || !x.Cut || len(x.Argv) != 1 {
		t.Errorf("shortened entry: got %d arguments, cut %t, %v, want one argument and cut", len(x.Argv), x.Cut, err)
	}
}

func TestExclusiveReportsEarlierCallAndListsSandboxUntilRemove(t *testing.T) {
	r := newFixture(t)
	for i, s := range []*ingest.Ingester{r.open(), r.open()} {
		err := s.Exclusive(t.Context(), sandboxID, func(again bool) error {
			if again != (i > 0) {
				t.Errorf("process %d: again is %t", i, again)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	s := r.open()
	if list, err := s.List(); err != nil || len(list) != 1 || list[0] != sandboxID {
		t.Errorf("List: got %v, %v, want %s", list, err, sandboxID)
	}
	if has, err := s.Has(sandboxID); err != nil || !has {
		t.Errorf("Has: got %t, %v, want true", has, err)
	}
	if err := s.Remove(sandboxID); err != nil {
		t.Error(err)
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("List after Remove: got %v, %v, want none", list, err)
	}
}

// FuzzLines checks that files with any content can be ingested, and that a second process adds no
// entries for the same lines.
func FuzzLines(f *testing.F) {
	one, _ := json.Marshal(exec(1, "a"))
	f.Add(append(one, '\n'))
	f.Add([]byte("{}\n\x00\x00\n{\"seq\":18446744073709551615,\"kind\":\"exit\"}\n{\"seq\":1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newFixture(t)
		s := r.open()
		r.write("events", string(data))
		r.write("net", string(data))
		r.drain(s, true)
		count := func() int { return len(r.log.Entries(audit.Exec, audit.Exit, audit.File, audit.Flow)) }
		before := count()
		r.drain(r.open(), true)
		if after := count(); after != before {
			t.Errorf("a second process changed %d entries to %d: %s", before, after, r.entries())
		}
	})
}
