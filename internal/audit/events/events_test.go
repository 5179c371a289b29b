package events_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/audit/events"
)

// file returns an empty event file.
func file(t testing.TB) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "events"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func writer(t testing.TB, f *os.File, next uint64, limit int64) *events.Writer {
	t.Helper()
	w, err := events.NewWriter(int(f.Fd()), next, limit, false)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// all returns the remaining events of a reader.
func all(t testing.TB, r *events.Reader) []events.Event {
	t.Helper()
	var out []events.Event
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
}

func TestAppendToEqualsStandardJSON(t *testing.T) {
	full := events.Event{
		Seq: 7, Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Kind: events.Exec, PID: 2, Parent: 1, UID: 1000, Command: 2,
		Program: "/bin/sh", Argv: []string{"sh", "-c", "echo \"a\\b\"\n\x00\x7f\u2028 é"}, Cwd: "/", Env: []string{"PATH"}, Cut: true,
		Code: 3, Signal: 9, Took: time.Second, Path: "/a b", Op: events.Changed, Type: "file", Mode: 0o644, Size: 1 << 40,
		Sum: "ab", Unhashed: "gone", Lost: 5, Reason: "because",
	}
	for _, e := range []events.Event{full, {Seq: 1, Kind: events.Began, Time: full.Time}} {
		line := e.AppendTo(nil)
		if strings.Count(string(line), "\n") != 1 {
			t.Errorf("got %q, want one line", line)
		}
		got, err := events.Parse(line)
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("Parse of the line: got %+v, %v; want %+v", got, err, e)
		}
		var fields, standard map[string]any
		standardLine, err := json.Marshal(e)
		if err := errors.Join(err, json.Unmarshal(line, &fields), json.Unmarshal(standardLine, &standard)); err != nil || !reflect.DeepEqual(fields, standard) {
			t.Errorf("AppendTo got %s, encoding/json %s: %v", line, standardLine, err)
		}
	}
}

func TestReaderContinuesAfterEOF(t *testing.T) {
	f := file(t)
	w, r := writer(t, f, 1, 1<<20), events.NewReader(f, 0, 0)
	for i := range 3 {
		if err := w.Write(&events.Event{Kind: events.Exec, PID: i + 1}, false); err != nil {
			t.Fatal(err)
		}
		if got := all(t, r); len(got) != 1 || got[0].Seq != uint64(i+1) || got[0].PID != i+1 {
			t.Fatalf("after event %d was written: got %+v, want only this event", i+1, got)
		}
	}
	// An incomplete line is not returned.
	if _, err := f.WriteString(`{"seq":4,"time":"2026-01-01T00:00:00Z",`); err != nil {
		t.Fatal(err)
	}
	if got := all(t, r); len(got) != 0 {
		t.Fatalf("incomplete line: got %+v, want no event", got)
	}
	if _, err := f.WriteString("\"kind\":\"exit\"}\n"); err != nil {
		t.Fatal(err)
	}
	if got := all(t, r); len(got) != 1 || got[0].Kind != events.Exit {
		t.Fatalf("after the line was completed: got %+v, want one exit event", got)
	}
	// A reader that starts after the third event reads no event twice.
	if got := all(t, events.NewReader(f, 0, 3)); len(got) != 1 || got[0].Seq != 4 {
		t.Fatalf("reader after event 3: got %+v, want event 4", got)
	}
}

func TestReaderReportsGaps(t *testing.T) {
	f := file(t)
	line := func(seq uint64) string {
		return string((&events.Event{Seq: seq, Kind: events.Exit, Time: time.Unix(1, 0)}).AppendTo(nil))
	}
	fmt.Fprint(f, line(1), line(5), "garbage\n", `{"seq":6,"time":"2026-01-01T00:00:00Z","kind":"exit","x":1}`+"\n", strings.Repeat("x", events.MaxLine+100_000)+"\n", line(6))
	var got []string
	for _, e := range all(t, events.NewReader(f, 0, 0)) {
		got = append(got, fmt.Sprintf("%s %d %d %s", e.Kind, e.Seq, e.Lost, e.Reason))
	}
	want := []string{"exit 1 0 ", "gap 2 3 missing", "exit 5 0 ", "gap 0 1 malformed", "gap 0 1 malformed", "gap 0 1 line_too_long", "exit 6 0 "}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("events and gaps: got %q\nwant %q", got, want)
	}
}

func TestFullFileRejectsEventsUntilFreed(t *testing.T) {
	f := file(t)
	const limit = 64 << 10
	w, r := writer(t, f, 1, limit), events.NewReader(f, 0, 0)
	event := &events.Event{Kind: events.Exec, Program: "/bin/true", Argv: []string{strings.Repeat("x", 500)}}
	n := 0
	for round := range 5 {
		before := n
		for {
			err := w.Write(event, false)
			if errors.Is(err, events.ErrFull) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if n++; n > 1000 {
				t.Fatalf("wrote %d events without reaching the limit", n)
			}
		}
		if n == before {
			t.Fatalf("round %d: Free released no space", round)
		}
		if !errors.Is(w.Reserve(), events.ErrFull) && round == 0 {
			if err := w.Write(event, false); err == nil {
				t.Error("Write to a full file returned no error")
			}
		}
		// The end of a started process is always written.
		if err := w.Write(&events.Event{Kind: events.Exit}, true); err != nil {
			t.Fatal(err)
		}
		n++
		got := all(t, r)
		if len(got) != n-before {
			t.Fatalf("got %d events, want %d", len(got), n-before)
		}
		if err := events.Free(f, r.Offset()); err != nil {
			t.Fatal(err)
		}
	}
	// A new writer finds the next number, and complete lines.
	seq, _, err := events.Last(f)
	if err != nil || seq != uint64(n) {
		t.Errorf("last is %d, %v; want %d", seq, err, n)
	}
	rest := all(t, events.NewReader(f, 0, 0))
	if len(rest) == 0 || rest[0].Kind == events.Gap || rest[len(rest)-1].Seq != uint64(n) {
		t.Errorf("after Free: got %d events, want the last ones up to %d", len(rest), n)
	}
}

// A failed write is returned as an error, or counted as lost if the event has happened.
func TestFailedWriteIsReportedOrCounted(t *testing.T) {
	f := file(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	fd := int(full.Fd())
	w, err := events.NewWriter(fd, 1, 1<<20, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(&events.Event{Kind: events.Exec}, false); err == nil {
		t.Error("Write to a full disk returned no error")
	}
	if w.Reserve() == nil {
		t.Error("Reserve returned no error after a failed write")
	}
	for range 2 {
		if err := w.Write(&events.Event{Kind: events.Exit}, true); err == nil {
			t.Error("Write to a full disk returned no error")
		}
	}
	if err := unix.Dup3(int(f.Fd()), fd, 0); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(&events.Event{Kind: events.Exec, PID: 7}, false); err != nil || w.Reserve() != nil {
		t.Fatal(err)
	}
	got := all(t, events.NewReader(f, 0, 0))
	if len(got) != 2 || got[0].Kind != events.Gap || got[0].Lost != 2 || got[0].Reason != events.ReasonFailed || got[1].Seq != 2 || got[1].PID != 7 {
		t.Errorf("after a failed write: got %+v, want a gap of 2 events and then event 2", got)
	}
}

// An incomplete line of a killed writer does not become part of the next line.
func TestNewWriterEndsIncompleteLine(t *testing.T) {
	f := file(t)
	if err := writer(t, f, 1, 1<<20).Write(&events.Event{Kind: events.Exec}, false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"seq":2,"ti`); err != nil {
		t.Fatal(err)
	}
	w, err := events.NewWriter(int(f.Fd()), 2, 1<<20, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(&events.Event{Kind: events.Exit}, false); err != nil {
		t.Fatal(err)
	}
	got := all(t, events.NewReader(f, 0, 0))
	if len(got) != 3 || got[0].Seq != 1 || got[1].Reason != events.ReasonMalformed || got[2].Seq != 2 {
		t.Errorf("after an incomplete line: got %+v, want event 1, a gap and event 2", got)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("{\"seq\":1,\"time\":\"2026-01-01T00:00:00Z\",\"kind\":\"exec\"}\n"), uint64(0))
	f.Add([]byte("\x00\x00cut\n{\"seq\":3,\"time\":\"2026-01-01T00:00:00Z\",\"kind\":\"exit\"}\n"), uint64(2))
	f.Add([]byte("\n\n{}\n[1]\n"), uint64(9))
	f.Fuzz(func(t *testing.T, data []byte, last uint64) {
		g := file(t)
		if _, err := g.Write(data); err != nil {
			t.Fatal(err)
		}
		r := events.NewReader(g, 0, last)
		at := last
		for _, e := range all(t, r) {
			if e.Kind == events.Gap && e.Seq == 0 {
				continue
			}
			if e.Seq <= at && e.Reason != events.ReasonMissing {
				t.Fatalf("the reader returned event %d after event %d", e.Seq, at)
			}
			if e.Reason != events.ReasonMissing {
				at = e.Seq
			}
		}
		if r.Offset() > int64(len(data)) {
			t.Fatalf("at %d of %d bytes", r.Offset(), len(data))
		}
		_, _, _ = events.Last(g)
	})
}

func FuzzLines(f *testing.F) {
	f.Add("a\n\"\\\x00\xff", "/tmp/x\u2028")
	f.Fuzz(func(t *testing.T, arg, path string) {
		e := events.Event{Seq: 1, Kind: events.File, Argv: []string{arg}, Path: path}
		line := e.AppendTo(nil)
		got, err := events.Parse(line)
		if err != nil || strings.Count(string(line), "\n") != 1 {
			t.Fatalf("encoding the event: got %q, %v, want one line", line, err)
		}
		if got.Argv[0] != strings.ToValidUTF8(arg, "\ufffd") && !strings.Contains(got.Argv[0], "\ufffd") {
			t.Fatalf("the argument %q became %q", arg, got.Argv[0])
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	f := file(b)
	w := writer(b, f, 1, 1<<40)
	e := events.Event{Kind: events.Exec, PID: 2, Program: "/usr/bin/true", Argv: []string{"true"}, Cwd: "/home/user", Env: []string{"PATH", "HOME", "LANG"}}
	for b.Loop() {
		if err := w.Write(&e, false); err != nil {
			b.Fatal(err)
		}
	}
}
