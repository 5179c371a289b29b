package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// openLog opens a log that the end of the test closes.
func openLog(t testing.TB, o Options) *Log {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "record")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func draft(i int) Draft {
	return Draft{Kind: Exec, Sandbox: fmt.Sprintf("box%d", i%3), Actor: "box", Data: map[string]int{"n": i}}
}

// fill appends the drafts from..to.
func fill(t testing.TB, l *Log, from, to int) {
	t.Helper()
	var batch []Draft
	for i := from; i < to; i++ {
		batch = append(batch, draft(i))
	}
	if err := l.Append(t.Context(), batch...); err != nil {
		t.Fatal(err)
	}
}

func readAll(t testing.TB, l *Log, f Filter) []Entry {
	t.Helper()
	var out []Entry
	if err := l.Read(t.Context(), f, false, func(e Entry) error { out = append(out, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func seqs(entries []Entry) []int64 {
	var out []int64
	for _, e := range entries {
		out = append(out, e.Seq)
	}
	return out
}

func TestAppendedEntriesAreRead(t *testing.T) {
	l := openLog(t, Options{})
	when := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("x", 3600))
	err := l.Append(t.Context(),
		Draft{Kind: Action, Actor: "local:0", Data: map[string]string{"op": "create"}},
		Draft{Kind: Flow, Sandbox: "box1", Time: when, Source: "net/box1", At: 1<<64 - 1},
	)
	if err != nil {
		t.Fatal(err)
	}
	got := readAll(t, l, Filter{})
	if len(got) != 2 || got[0].Kind != Action || string(got[0].Data) != `{"op":"create"}` || got[0].Prev != "" ||
		!got[1].Time.Equal(when) || got[1].At != 1<<64-1 || len(got[1].Prev) != 64 {
		t.Errorf("entries that were read: got %+v, want the 2 appended ones", got)
	}
	if at, err := l.Position(t.Context(), "net/box1"); at != 1<<64-1 || err != nil {
		t.Errorf("Position: got %d, %v, want %d", at, err, uint64(1<<64-1))
	}
	if at, err := l.Position(t.Context(), "net/box2"); at != 0 || err != nil {
		t.Errorf("Position of an unknown source: got %d, %v, want 0", at, err)
	}
}

// A line is the JSON of its Entry, and nothing else.
func TestLineIsJSONOfEntry(t *testing.T) {
	l := openLog(t, Options{})
	fill(t, l, 0, 5)
	data, err := os.ReadFile(filepath.Join(l.dir, segmentName(0)))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		e, err := decode([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(e)
		if err != nil || string(again) != line {
			t.Errorf("marshalled again: got %s, %v, want %s", again, err, line)
		}
	}
}

func TestReadFilters(t *testing.T) {
	l := openLog(t, Options{})
	base := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for i := range 10 {
		d := draft(i)
		d.Time = base.Add(time.Duration(i) * time.Minute)
		if i%2 == 1 {
			d.Kind = Exit
		}
		if err := l.Note(d); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		filter Filter
		want   []int64
	}{
		{"all", Filter{}, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"sandbox", Filter{Sandbox: "box1"}, []int64{1, 4, 7}},
		{"sandboxes", Filter{Sandboxes: []string{"box1", "box2"}}, []int64{1, 2, 4, 5, 7, 8}},
		{"no sandboxes", Filter{Sandboxes: []string{}}, nil},
		{"kind", Filter{Kinds: []Kind{Exit, Gap}}, []int64{1, 3, 5, 7, 9}},
		{"both", Filter{Sandbox: "box1", Kinds: []Kind{Exit}}, []int64{1, 7}},
		{"from and before", Filter{From: 3, Before: 6}, []int64{3, 4, 5}},
		{"time", Filter{Since: base.Add(2 * time.Minute), Until: base.Add(4 * time.Minute)}, []int64{2, 3}},
		{"after all", Filter{Since: base.Add(time.Hour)}, nil},
		{"limit", Filter{Limit: 2}, []int64{0, 1}},
		{"newest", Filter{Limit: 2, Newest: true}, []int64{8, 9}},
		{"newest of one", Filter{Limit: 2, Newest: true, Sandbox: "box0"}, []int64{6, 9}},
	} {
		if got := seqs(readAll(t, l, c.filter)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestReadContinuesAcrossBatches(t *testing.T) {
	l := openLog(t, Options{SegmentBytes: 64 << 10})
	for i := range 4 {
		fill(t, l, i*1000, i*1000+1000)
	}
	if got := readAll(t, l, Filter{}); len(got) != 4000 || got[3999].Seq != 3999 {
		t.Errorf("all entries: got %d, want 4000", len(got))
	}
	if got := readAll(t, l, Filter{Limit: 1300}); len(got) != 1300 || got[1299].Seq != 1299 {
		t.Errorf("oldest entries: got %d, want 1300, up to number 1299", len(got))
	}
	if got := readAll(t, l, Filter{Limit: 1300, Newest: true}); len(got) != 1300 || got[0].Seq != 2700 {
		t.Errorf("newest entries: got %d, want 1300, from number 2700 on", len(got))
	}
}

// A reopened log continues after its last entry, with the same key.
func TestReopenedLogContinues(t *testing.T) {
	l := openLog(t, Options{})
	fill(t, l, 0, 7)
	key := l.Key()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, Options{Dir: l.dir})
	fill(t, l, 7, 9)
	if got := readAll(t, l, Filter{}); len(got) != 9 || l.Key() != key || got[7].Prev == "" {
		t.Errorf("got %d entries with key %s, want 9 with %s", len(got), l.Key(), key)
	}
}

// Two logs that are open in one process lock each other out like two processes.
func TestTwoLogsWriteInTurn(t *testing.T) {
	a := openLog(t, Options{SegmentBytes: 2000})
	b := openLog(t, Options{Dir: a.dir, SegmentBytes: 2000})
	for i := range 30 {
		fill(t, a, i, i+1)
		fill(t, b, i, i+2)
	}
	if got := readAll(t, a, Filter{}); len(got) != 90 {
		t.Errorf("entries of both writers: got %d, want 90", len(got))
	}
}

// The log works without its index. The index of another log is rebuilt.
func TestMissingOrWrongIndexIsRebuilt(t *testing.T) {
	l := openLog(t, Options{})
	if err := l.Append(t.Context(), Draft{Kind: Flow, Sandbox: "box1", Source: "net/box1", At: 7}); err != nil {
		t.Fatal(err)
	}
	fill(t, l, 0, 20)
	want := seqs(readAll(t, l, Filter{Sandbox: "box1"}))
	l.Close()
	other := openLog(t, Options{})
	fill(t, other, 0, 3)
	readAll(t, other, Filter{})
	other.Close()
	foreign, err := os.ReadFile(filepath.Join(other.dir, indexName))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"no index": nil, "index of another log": foreign, "invalid index": []byte(strings.Repeat("noise", 5000))} {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			os.Remove(filepath.Join(l.dir, indexName+suffix))
		}
		if data != nil {
			if err := os.WriteFile(filepath.Join(l.dir, indexName), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		again := openLog(t, Options{Dir: l.dir})
		if got := seqs(readAll(t, again, Filter{Sandbox: "box1"})); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		if at, err := again.Position(t.Context(), "net/box1"); at != 7 || err != nil {
			t.Errorf("%s: got position %d, %v, want 7", name, at, err)
		}
		again.Close()
	}
}

func TestFollowSeesOtherWriters(t *testing.T) {
	l := openLog(t, Options{})
	fill(t, l, 0, 3)
	other := openLog(t, Options{Dir: l.dir})
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	got, done := make(chan int64, 100), make(chan error, 1)
	go func() {
		done <- l.Read(ctx, Filter{Limit: 2, Newest: true}, true, func(e Entry) error { got <- e.Seq; return nil })
	}()
	for want := int64(1); want < 9; want++ {
		if want >= 3 && want%2 == 1 {
			fill(t, l, 0, 1)
		} else if want >= 3 {
			fill(t, other, 0, 1)
		}
		select {
		case seq := <-got:
			if seq != want {
				t.Fatalf("followed entry: got %d, want %d", seq, want)
			}
		case err := <-done:
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Read after cancel: got %v, want Canceled", err)
	}
}

// EndFollowing ends a follower after all existing entries, or at once if it waits for new ones.
func TestEndFollowingEndsRead(t *testing.T) {
	l := openLog(t, Options{})
	fill(t, l, 0, 3)
	seen, done := make(chan int64, 10), make(chan error, 1)
	follow := func() {
		done <- l.Read(t.Context(), Filter{}, true, func(e Entry) error { seen <- e.Seq; return nil })
	}
	go follow()
	for range 3 {
		<-seen
	}
	l.EndFollowing()
	if err := <-done; err != nil {
		t.Error(err)
	}
	fill(t, l, 3, 4)
	follow()
	if err := <-done; err != nil || len(seen) != 4 {
		t.Errorf("Read after EndFollowing: got %v and %d entries, want 4", err, len(seen))
	}
}

func TestCloseLeavesNoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	l := openLog(t, Options{SegmentBytes: 1000})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	seen := make(chan bool, 1)
	go func() {
		done <- l.Read(ctx, Filter{}, true, func(Entry) error {
			select {
			case seen <- true:
			default:
			}
			return nil
		})
	}()
	fill(t, l, 0, 50)
	if err := l.Note(draft(1)); err != nil {
		t.Fatal(err)
	}
	<-seen
	cancel()
	<-done
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// database/sql ends its own goroutine a moment later.
	hosttest.EventuallyAtMost(t, "goroutines", before, runtime.NumGoroutine)
}

func TestInvalidEntriesAreRejected(t *testing.T) {
	l := openLog(t, Options{})
	for name, d := range map[string]Draft{
		"no kind":         {},
		"too much":        {Kind: Exec, Data: strings.Repeat("x", maxData)},
		"no JSON":         {Kind: Exec, Data: func() {}},
		"bad raw":         {Kind: Exec, Data: json.RawMessage(`{"a":`)},
		"long name":       {Kind: Exec, Sandbox: strings.Repeat("x", maxName+1)},
		"source, no at":   {Kind: Exec, Source: "net/x"},
		"impossible time": {Kind: Exec, Time: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if err := l.Append(t.Context(), d); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: Append returned %v, want Invalid", name, err)
		}
		if err := l.Note(d); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: Note returned %v, want Invalid", name, err)
		}
	}
	if err := l.Append(t.Context(), Draft{Kind: Exec, Data: strings.Repeat("x", maxData-2)}); err != nil {
		t.Errorf("Append of the largest data: %v", err)
	}
	if got := readAll(t, l, Filter{}); len(got) != 1 {
		t.Errorf("got %d entries, want 1", len(got))
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
