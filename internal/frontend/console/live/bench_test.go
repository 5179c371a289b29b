package live

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
)

// constantSandboxes are sandboxes that do not change, except by audit entries.
type constantSandboxes []sandbox.Sandbox

func (s constantSandboxes) List(_ context.Context, _ sandbox.Principal, f sandbox.Filter) (sandbox.Page, error) {
	from := 0
	if f.AfterID != "" {
		for s[from].ID != f.AfterID {
			from++
		}
		from++
	}
	to := min(from+f.Limit, len(s))
	return sandbox.Page{Sandboxes: s[from:to], More: to < len(s)}, nil
}

func (s constantSandboxes) Get(context.Context, sandbox.Principal, string) (sandbox.Sandbox, error) {
	return s[0], nil
}

// noData has no approval requests and no audit entries, and measures constant CPU use.
type noData struct{}

func (noData) List(context.Context, approval.Caller, approval.Query) ([]approval.Approval, error) {
	return nil, nil
}

func (noData) Watch(ctx context.Context, _ approval.Caller, _ approval.Query, _ int64, _ func(approval.Event) error) error {
	<-ctx.Done()
	return nil
}

func (noData) Read(ctx context.Context, _ audit.Filter, follow bool, _ func(audit.Entry) error) error {
	if follow {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (noData) Usage(context.Context, string) (engine.Usage, error) {
	now := time.Now()
	return engine.Usage{At: now, CPUTime: time.Duration(now.UnixNano()) / 4}, nil
}

// BenchmarkSecond measures the work of one second for a fleet in which every sandbox runs a command
// and pages watch. The time per operation is the share of a processor that the console uses.
func BenchmarkSecond(b *testing.B) {
	for _, pages := range []int{1, 5} {
		b.Run(fmt.Sprintf("sandboxes=1000/pages=%d", pages), func(b *testing.B) { benchmarkSecond(b, pages) })
	}
}

func benchmarkSecond(b *testing.B, pages int) {
	var all constantSandboxes
	for i := range 1000 {
		all = append(all, sandbox.Sandbox{
			ID: fmt.Sprintf("i%019d", i), Name: fmt.Sprintf("box-%d", i), State: sandbox.Running, StartedAt: time.Now(),
			Template: "base", Engine: "fake", PolicyLevel: "standard", Metadata: map[string]string{"team": "one", "task": "two"},
		})
	}
	l, err := New(Deps{Sandboxes: all, Approvals: noData{}, Audit: noData{}, Meter: noData{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	var streams []*stream
	var outs []*frames
	for i := range pages {
		s := &stream{id: fmt.Sprint(i), ctx: b.Context(), changed: make(chan struct{}, 1), event: -1, topics: topics{fleet: true}}
		for _, sb := range all[:50] {
			s.topics.watch = append(s.topics.watch, sb.ID)
		}
		l.streams[s.id] = s
		streams = append(streams, s)
		outs = append(outs, &frames{w: io.Discard, rc: http.NewResponseController(httptest.NewRecorder())})
	}
	var bytes int
	for n := 0; b.Loop(); n++ {
		for i, sb := range all {
			kind, data := audit.CommandStarted, fmt.Appendf(nil, `{"n":%d,"how":"exec","argv":["python3","task.py","--step","%d"]}`, n, i)
			if n%2 == 1 {
				kind, data = audit.CommandEnded, fmt.Appendf(nil, `{"n":%d,"exit":0,"duration_ms":12}`, n-1)
			}
			if err := l.take(audit.Entry{Seq: l.lines.next, Time: time.Now(), Kind: kind, Sandbox: sb.ID, Data: data}); err != nil {
				b.Fatal(err)
			}
		}
		l.rows.stale = true
		l.refresh(b.Context())
		l.measure(b.Context())
		for i, s := range streams {
			if _, err := l.collect(s, outs[i]); err != nil {
				b.Fatal(err)
			}
			bytes += outs[i].buf.Len()
			outs[i].buf.Reset()
		}
	}
	b.ReportMetric(float64(bytes)/float64(b.N)/float64(pages), "bytes/page")
}

// TestStreamsAtSameVersionShareFrame checks that a stream that is behind gets only changed rows,
// and a stream that is too far behind gets all rows.
func TestStreamsAtSameVersionShareFrame(t *testing.T) {
	f := newRowTable()
	now := time.Now()
	boxOf := func(id string) sandbox.Sandbox {
		return sandbox.Sandbox{ID: id, State: sandbox.Running, StartedAt: now}
	}
	f.replace([]sandbox.Sandbox{boxOf("a"), boxOf("b")}, nil, now)
	f.rebuild(nil, true, now)
	one := f.version
	f.replace([]sandbox.Sandbox{boxOf("b"), boxOf("c")}, nil, now)
	f.rebuild(nil, true, now)
	got := f.changes(one)
	if !bytes.Contains(got, []byte(`"full":false`)) || bytes.Contains(got, []byte(`"id":"b"`)) || !bytes.Contains(got, []byte(`"id":"c"`)) || !bytes.Contains(got, []byte(`"removed":["a"]`)) {
		t.Errorf("changes after version %d: got %s, want c and the removed a", one, got)
	}
	if again := f.changes(one); &again[0] != &got[0] {
		t.Error("the frame was encoded twice")
	}
	for i := range maxGone + 1 {
		id := fmt.Sprintf("g%d", i)
		f.replace([]sandbox.Sandbox{boxOf(id)}, nil, now)
		f.rebuild(nil, true, now)
	}
	if got := f.changes(one); !bytes.Contains(got, []byte(`"full":true`)) {
		t.Errorf("stream that is too far behind: got %s, want all rows", got)
	}
	if len(f.gone) > maxGone || len(f.rows) != 1 {
		t.Errorf("got %d rows and %d removed ones, want 1 and at most %d", len(f.rows), len(f.gone), maxGone)
	}
}

// TestBufferedEntriesAreLimited checks that the buffer is bounded by number and by bytes.
func TestBufferedEntriesAreLimited(t *testing.T) {
	n := newLines()
	for i := range int64(3 * maxLines) {
		n.add(audit.Entry{Seq: i})
	}
	if len(n.ring) != maxLines || n.newest() != 3*maxLines-1 || n.first() != 2*maxLines {
		t.Errorf("got %d entries from %d to %d, want %d from %d to %d", len(n.ring), n.first(), n.newest(), maxLines, 2*maxLines, 3*maxLines-1)
	}
	if _, here := n.after(n.first() - 2); here {
		t.Error("after reports a dropped entry as buffered")
	}
	if got, here := n.after(n.first() - 1); !here || len(got) != batch || got[0].entry.Seq != n.first() {
		t.Errorf("got %d entries, buffered %t; want a full batch from the first entry", len(got), here)
	}
	big := make([]byte, 1<<20)
	for i := range int64(20) {
		n.add(audit.Entry{Seq: 3*maxLines + i, Data: big})
	}
	if n.bytes > maxLineBytes {
		t.Errorf("got %d buffered bytes, want at most %d", n.bytes, maxLineBytes)
	}
}
