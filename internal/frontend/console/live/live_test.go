package live_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/frontend/console/live"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
	"github.com/crannog/crannog/internal/sandbox"
)

type rowsEvent struct {
	Full      bool       `json:"full"`
	Sandboxes []live.Row `json:"sandboxes"`
	Removed   []string   `json:"removed"`
}

func rowsOf(t *testing.T, e event) rowsEvent {
	t.Helper()
	var f rowsEvent
	if err := json.Unmarshal([]byte(e.data), &f); err != nil {
		t.Fatalf("%s: %v", e.data, err)
	}
	return f
}

func every([]byte) bool { return true }

// A page gets all rows first, and then changed rows: a new sandbox, its commands, its denied
// requests, and its end.
func TestFleet(t *testing.T) {
	r := newRig(t)
	r.boxes.put(box("aaa"))
	p := r.open("topics=fleet", "")
	f := rowsOf(t, p.until("fleet", every))
	if !f.Full || len(f.Sandboxes) != 1 || f.Sandboxes[0].ID != "aaa" || f.Sandboxes[0].LastCommand != nil || f.Sandboxes[0].Attention != 0 {
		t.Fatalf("first %+v", f)
	}
	r.boxes.put(box("bbb"))
	r.note(flow("bbb", 1, egress.Deny)) // one of its own checks
	late := flow("bbb", 2, egress.Deny)
	r.note(audit.Draft{Kind: audit.SandboxStarted, Sandbox: "bbb", Actor: "local:0", Data: payload.Started{}})
	r.note(late) // which came into the record after it
	if f = rowsOf(t, p.until("fleet", has(`"bbb"`))); f.Full || len(f.Sandboxes) != 1 {
		t.Errorf("a new sandbox: %+v", f)
	}
	r.note(audit.Draft{Kind: audit.CommandStarted, Sandbox: "bbb", Data: observe.Started{N: 1, Argv: []string{"printf", "a\x1b[2Jb\nc\xff"}}})
	f = rowsOf(t, p.until("fleet", has("printf")))
	if got := f.Sandboxes[0].LastCommand; got.Text != "printf a\uFFFD[2Jb c\uFFFD" || got.ExitCode != nil {
		t.Errorf("the command is %+v", got)
	}
	one := 1
	r.note(audit.Draft{Kind: audit.CommandEnded, Sandbox: "bbb", Data: observe.Ended{N: 1, Exit: &one}})
	f = rowsOf(t, p.until("fleet", has(`"exit_code":1`)))
	if f.Sandboxes[0].AttentionWhy != "its last command failed" {
		t.Errorf("attention %+v", f.Sandboxes[0])
	}
	r.note(flow("bbb", 1, egress.Deny))
	f = rowsOf(t, p.until("fleet", has(`"denied":1`)))
	if f.Sandboxes[0].Attention <= 4000 {
		t.Errorf("a refusal is %+v", f.Sandboxes[0])
	}
	gone := box("bbb")
	gone.State, gone.Reason, gone.StoppedAt = sandbox.Stopped, "oom", time.Now()
	r.boxes.put(gone)
	r.note(audit.Draft{Kind: audit.SandboxEnded, Sandbox: "bbb", Data: payload.Ended{Reason: "oom"}})
	f = rowsOf(t, p.until("fleet", has(`"stopped"`)))
	if row := f.Sandboxes[0]; !row.OOM || row.Reason != "oom" || row.Attention != 3000 {
		t.Errorf("ended: %+v", row)
	}
	r.boxes.remove("aaa")
	r.note(audit.Draft{Kind: audit.Action, Sandbox: "aaa", Data: payload.Action{Do: "forget", Outcome: "ok"}})
	if f = rowsOf(t, p.until("fleet", has(`"removed":["aaa"]`))); len(f.Sandboxes) != 0 {
		t.Errorf("removed: %+v", f)
	}
}

func flow(id string, seq uint64, effect egress.Effect) audit.Draft {
	return audit.Draft{Kind: audit.Flow, Sandbox: id, Actor: "box", Data: egress.Record{
		Time: time.Now(), Sandbox: id, Seq: seq, Kind: egress.KindHTTP, Host: "example.com",
		Decision: egress.Decision{Effect: effect, Rule: "network.unlisted", Layer: "level"}, Sent: 500,
	}}
}

// For a sandbox whose network is followed, a denied request is sent with its rule; for others
// nothing is sent.
func TestFlows(t *testing.T) {
	r := newRig(t)
	p := r.open("topics=network:aaa", "")
	r.note(flow("bbb", 1, egress.Deny))
	r.note(flow("aaa", 1, egress.Deny))
	e := p.next()
	var f struct {
		Sandbox, Rule, Effect string
		Seq                   uint64
	}
	if err := json.Unmarshal([]byte(e.data), &f); err != nil || e.name != "flow" || f.Sandbox != "aaa" || f.Rule != "network.unlisted" || f.Effect != "deny" {
		t.Errorf("%+v, %v", e, err)
	}
	if e.id != "1" {
		t.Errorf("a flow is resumed from %q", e.id)
	}
}

// Approval requests are first sent as a list, then as they are made and decided, and the sandbox's
// row has their number.
func TestApprovals(t *testing.T) {
	r := newRig(t)
	r.boxes.put(box("aaa"))
	r.asks.open = []approval.Approval{{ID: "a1", Sandbox: "aaa", State: approval.Pending, Summary: "one"}}
	p, f := r.open("topics=approvals", ""), r.open("topics=fleet", "")
	p.until("approvals", has(`"a1"`))
	f.until("fleet", has(`"pending":1`))
	r.asks.next <- approval.Event{Type: "pending", Approval: r.asks.open[0]} // the service tells of open ones again
	r.asks.next <- approval.Event{Type: "pending", Approval: approval.Approval{ID: "a2", Sandbox: "aaa", State: approval.Pending}}
	e := p.until("approval", every)
	if !strings.Contains(e.data, `"a2"`) {
		t.Errorf("told twice: %s", e.data)
	}
	f.until("fleet", has(`"pending":2`))
	r.asks.next <- approval.Event{Type: "denied", Approval: approval.Approval{ID: "a1", Sandbox: "aaa", State: approval.Denied}}
	p.until("approval", has(`"denied"`))
	f.until("fleet", has(`"pending":1`))
}

// Watched sandboxes are measured once a second, and their use of the processor is a rate.
func TestMetrics(t *testing.T) {
	r := newRig(t)
	r.boxes.put(box("aaa"))
	r.boxes.put(box("bbb"))
	p := r.open("watch=bbb,zzz", "")
	var m struct{ Rows []live.Metric }
	if err := json.Unmarshal([]byte(p.until("metrics", every).data), &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Rows) != 1 || m.Rows[0].ID != "bbb" || m.Rows[0].CPU < 0.2 || m.Rows[0].CPU > 0.3 || m.Rows[0].Memory != 7<<20 || m.Rows[0].MemoryLimit != 512<<20 {
		t.Errorf("%+v", m.Rows)
	}
}

// A page's topics can be changed while the stream is open, only by its own session.
func TestChange(t *testing.T) {
	r := newRig(t)
	r.note(audit.Draft{Kind: audit.ServerStarted})
	p := r.open("", "")
	if got := r.change("mallory", p.stream, `{"topics":["record"]}`); got != http.StatusNotFound {
		t.Errorf("another session: %d", got)
	}
	for _, body := range []string{`{"topics":["records"]}`, `{"topics":["record:../x"]}`, `{"watch":["A"]}`, `{"topic":["fleet"]}`, `x`} {
		if got := r.change("alice", p.stream, body); got != http.StatusBadRequest {
			t.Errorf("%s: %d", body, got)
		}
	}
	if got := r.change("alice", p.stream, `{"topics":["record:aaa"],"watch":[]}`); got != http.StatusNoContent {
		t.Fatalf("%d", got)
	}
	r.note(audit.Draft{Kind: audit.File, Sandbox: "aaa"})
	if e := p.next(); e.name != "entry" || e.id != "1" {
		t.Errorf("%+v", e)
	}
	p.close()
	if got := r.change("alice", "ABC", `{"topics":[]}`); got != http.StatusNotFound {
		t.Errorf("a stream that is none: %d", got)
	}
}

// A page whose stream broke continues where it was, also with a server that was restarted: no entry
// is lost or repeated.
func TestResume(t *testing.T) {
	dir, b := filepath.Join(t.TempDir(), "record"), &boxes{}
	r := newRigOn(t, openRecord(t, dir), b)
	p := r.open("topics=record:aaa", "")
	note := func(n int) {
		t.Helper()
		for range n {
			r.note(audit.Draft{Kind: audit.File, Sandbox: "aaa"})
			r.note(audit.Draft{Kind: audit.File, Sandbox: "bbb"})
		}
	}
	var got []int
	read := func(n int) {
		t.Helper()
		for range n {
			e := p.next()
			seq, err := strconv.Atoi(e.id)
			if e.name != "entry" || err != nil {
				t.Fatalf("%+v", e)
			}
			got = append(got, seq)
		}
	}
	note(3)
	read(2)
	last := p.lastID
	p.close()
	note(3)
	p = r.open("topics=record:aaa", last)
	read(4)
	last = p.lastID
	r.close()
	r = newRigOn(t, openRecord(t, dir), b)
	note(700) // more than is read at once
	p = r.open("topics=record:aaa", last)
	note(1)
	read(701)
	for i, seq := range got {
		if seq != 2*i {
			t.Fatalf("entry %d came as number %d: %v", 2*i, i, got[max(0, i-3):i+1])
		}
	}
	p.close()
	p = r.open("topics=record", "99999")
	if e := p.next(); e.name != "gap" {
		t.Errorf("of another record: %+v", e)
	}
}

// A page that was away for too long is notified of the gap, and gets the newest entries.
func TestFarBehind(t *testing.T) {
	r := newRig(t)
	const n = 21_000
	drafts := make([]audit.Draft, n)
	for i := range drafts {
		drafts[i] = audit.Draft{Kind: audit.Exec, Sandbox: "aaa"}
	}
	for len(drafts) > 0 {
		r.note(drafts[0])
		if err := r.log.Append(t.Context(), drafts[1:min(1000, len(drafts))]...); err != nil {
			t.Fatal(err)
		}
		drafts = drafts[min(1000, len(drafts)):]
	}
	p := r.open("topics=record", "5")
	if e := p.next(); e.name != "gap" || !strings.Contains(e.data, "994 entries") {
		t.Fatalf("%+v", e)
	}
	for want := 1000; want < n; want++ {
		if e := p.next(); e.id != strconv.Itoa(want) {
			t.Fatalf("%+v, want %d", e, want)
		}
	}
}

// A page gets heartbeats on a stream without events, with the position of the stream.
func TestBeat(t *testing.T) {
	r := newRigOn(t, openRecord(t, filepath.Join(t.TempDir(), "record")), &boxes{}, func(d *live.Deps) { d.Heartbeat = time.Millisecond })
	r.note(audit.Draft{Kind: audit.ServerStarted})
	p := r.open("topics=approvals", "")
	for p.next().name != "approvals" {
	}
	for range 3 {
		e, err := p.read()
		if err != nil || e.name != "beat" || e.data != "{}" {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	r.note(audit.Draft{Kind: audit.ServerStarted})
	for p.lastID != "1" {
		if _, err := p.read(); err != nil {
			t.Fatal(err)
		}
	}
}

// Text that a sandbox chose is data: it cannot end a line, begin another event or be invalid text.
func TestHostileText(t *testing.T) {
	r := newRig(t)
	evil := box("aaa")
	evil.Name = "x\n\nevent: hello\ndata: {}\n\n\u202e<script>\xff"
	evil.Metadata = map[string]string{"k\r\n": "</script>\x00"}
	r.boxes.put(evil)
	p := r.open("topics=fleet", "")
	e := p.next()
	f := rowsOf(t, e)
	if e.name != "fleet" || len(f.Sandboxes) != 1 || !strings.HasPrefix(f.Sandboxes[0].Name, "x\n\nevent: hello") || strings.Contains(e.data, "<script>") {
		t.Errorf("%q", e.data)
	}
}

// Streams are bounded, and nothing works while no page is connected.
func TestBoundsAndRest(t *testing.T) {
	r := newRig(t)
	var pages []*page
	for range 32 {
		pages = append(pages, r.open("topics=fleet", ""))
	}
	if p := r.ask("alice", "topics=fleet", ""); p.res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one too many: %d", p.res.StatusCode)
	}
	if p := r.ask("bob", "topics=fleet", ""); p.res.StatusCode != http.StatusOK {
		t.Errorf("of somebody else: %d", p.res.StatusCode)
	}
	for i, q := range []string{"topics=x", "after=x", "after=-2", "watch=..", "color=red", "topics=a&topics=b", "topics=" + strings.Repeat("fleet,", 65)} {
		if p := r.ask("carol", q, ""); p.res.StatusCode != http.StatusBadRequest {
			t.Errorf("%d: %d", i, p.res.StatusCode)
		}
	}
	for _, p := range pages {
		p.until("fleet", every)
	}
	r.live.Close()
	for _, p := range pages {
		for {
			if _, err := p.read(); err != nil {
				break
			}
		}
	}
	before := r.boxes.lists.Load()
	if p := r.ask("alice", "topics=fleet", ""); p.res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("after the end: %d", p.res.StatusCode)
	}
	if after := r.boxes.lists.Load(); after != before {
		t.Errorf("%d lists after the end", after-before)
	}
}
