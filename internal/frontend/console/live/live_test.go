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

// anyData accepts every event.
func anyData([]byte) bool { return true }

// TestFleetSendsAllRowsThenChanges checks that a page first gets all rows, and then changed rows: a
// new sandbox, its commands, its denied requests, and its end.
func TestFleetSendsAllRowsThenChanges(t *testing.T) {
	r := newRig(t)
	r.sandboxes.put(fakeSandbox("aaa"))
	p := r.open("topics=fleet", "")
	f := rowsOf(t, p.until("fleet", anyData))
	if !f.Full || len(f.Sandboxes) != 1 || f.Sandboxes[0].ID != "aaa" || f.Sandboxes[0].LastCommand != nil || f.Sandboxes[0].Attention != 0 {
		t.Fatalf("first %+v", f)
	}
	r.sandboxes.put(fakeSandbox("bbb"))
	r.note(flow("bbb", 1, egress.Deny)) // a denial of a readiness probe
	late := flow("bbb", 2, egress.Deny)
	r.note(audit.Draft{Kind: audit.SandboxStarted, Sandbox: "bbb", Actor: "local:0", Data: payload.Started{}})
	r.note(late) // a denial of a probe that was recorded after the start
	if f = rowsOf(t, p.until("fleet", containing(`"bbb"`))); f.Full || len(f.Sandboxes) != 1 {
		t.Errorf("new sandbox: got %+v, want one changed row", f)
	}
	r.note(audit.Draft{Kind: audit.CommandStarted, Sandbox: "bbb", Data: observe.Started{N: 1, Argv: []string{"printf", "a\x1b[2Jb\nc\xff"}}})
	f = rowsOf(t, p.until("fleet", containing("printf")))
	if got := f.Sandboxes[0].LastCommand; got.Text != "printf a\uFFFD[2Jb c\uFFFD" || got.ExitCode != nil {
		t.Errorf("got last command %+v", got)
	}
	one := 1
	r.note(audit.Draft{Kind: audit.CommandEnded, Sandbox: "bbb", Data: observe.Ended{N: 1, Exit: &one}})
	f = rowsOf(t, p.until("fleet", containing(`"exit_code":1`)))
	if f.Sandboxes[0].AttentionWhy != "its last command failed" {
		t.Errorf("failed command: got attention of %+v", f.Sandboxes[0])
	}
	r.note(flow("bbb", 1, egress.Deny))
	f = rowsOf(t, p.until("fleet", containing(`"denied":1`)))
	if f.Sandboxes[0].Attention <= 4000 {
		t.Errorf("denied request: got attention of %+v, want above 4000", f.Sandboxes[0])
	}
	gone := fakeSandbox("bbb")
	gone.State, gone.Reason, gone.StoppedAt = sandbox.Stopped, "oom", time.Now()
	r.sandboxes.put(gone)
	r.note(audit.Draft{Kind: audit.SandboxEnded, Sandbox: "bbb", Data: payload.Ended{Reason: "oom"}})
	f = rowsOf(t, p.until("fleet", containing(`"stopped"`)))
	if row := f.Sandboxes[0]; !row.OOM || row.Reason != "oom" || row.Attention != 3000 {
		t.Errorf("ended sandbox: got %+v, want out of memory", row)
	}
	r.sandboxes.remove("aaa")
	r.note(audit.Draft{Kind: audit.Action, Sandbox: "aaa", Data: payload.Action{Do: "forget", Outcome: "ok"}})
	if f = rowsOf(t, p.until("fleet", containing(`"removed":["aaa"]`))); len(f.Sandboxes) != 0 {
		t.Errorf("removed sandbox: got %+v, want no rows", f)
	}
}

func flow(id string, seq uint64, effect egress.Effect) audit.Draft {
	return audit.Draft{Kind: audit.Flow, Sandbox: id, Actor: "box", Data: egress.Record{
		Time: time.Now(), Sandbox: id, Seq: seq, Kind: egress.KindHTTP, Host: "example.com",
		Decision: egress.Decision{Effect: effect, Rule: "network.unlisted", Layer: "level"}, Sent: 500,
	}}
}

// TestFlowsOfFollowedSandbox checks that flows are sent only for the sandbox whose network is
// followed, with the rule of a denial.
func TestFlowsOfFollowedSandbox(t *testing.T) {
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
		t.Errorf("event of the flow: got %+v, %v", e, err)
	}
	if e.id != "1" {
		t.Errorf("got event ID %q, want 1", e.id)
	}
}

// TestApprovalListThenEvents checks that a page first gets the list of approval requests, and then
// each new one and each decision. The sandbox's row has the number of pending requests.
func TestApprovalListThenEvents(t *testing.T) {
	r := newRig(t)
	r.sandboxes.put(fakeSandbox("aaa"))
	r.approvals.open = []approval.Approval{{ID: "a1", Sandbox: "aaa", State: approval.Pending, Summary: "one"}}
	p, f := r.open("topics=approvals", ""), r.open("topics=fleet", "")
	p.until("approvals", containing(`"a1"`))
	f.until("fleet", containing(`"pending":1`))
	r.approvals.next <- approval.Event{Type: "pending", Approval: r.approvals.open[0]} // the service repeats pending requests
	r.approvals.next <- approval.Event{Type: "pending", Approval: approval.Approval{ID: "a2", Sandbox: "aaa", State: approval.Pending}}
	e := p.until("approval", anyData)
	if !strings.Contains(e.data, `"a2"`) {
		t.Errorf("got event %s, want only a2, because a1 was in the list", e.data)
	}
	f.until("fleet", containing(`"pending":2`))
	r.approvals.next <- approval.Event{Type: "denied", Approval: approval.Approval{ID: "a1", Sandbox: "aaa", State: approval.Denied}}
	p.until("approval", containing(`"denied"`))
	f.until("fleet", containing(`"pending":1`))
}

// TestWatchedSandboxesAreMeasured checks that watched sandboxes are measured, and that their CPU
// use is a rate.
func TestWatchedSandboxesAreMeasured(t *testing.T) {
	r := newRig(t)
	r.sandboxes.put(fakeSandbox("aaa"))
	r.sandboxes.put(fakeSandbox("bbb"))
	p := r.open("watch=bbb,zzz", "")
	var m struct{ Rows []live.Metric }
	if err := json.Unmarshal([]byte(p.until("metrics", anyData).data), &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Rows) != 1 || m.Rows[0].ID != "bbb" || m.Rows[0].CPU < 0.2 || m.Rows[0].CPU > 0.3 || m.Rows[0].Memory != 7<<20 || m.Rows[0].MemoryLimit != 512<<20 {
		t.Errorf("rows of metrics: got %+v", m.Rows)
	}
}

// TestTopicsCanBeChanged checks that only the session of a stream can change its topics.
func TestTopicsCanBeChanged(t *testing.T) {
	r := newRig(t)
	r.note(audit.Draft{Kind: audit.ServerStarted})
	p := r.open("", "")
	if got := r.change("mallory", p.stream, `{"topics":["record"]}`); got != http.StatusNotFound {
		t.Errorf("change by another session: got status %d, want 404", got)
	}
	for _, body := range []string{`{"topics":["records"]}`, `{"topics":["record:../x"]}`, `{"watch":["A"]}`, `{"topic":["fleet"]}`, `x`} {
		if got := r.change("alice", p.stream, body); got != http.StatusBadRequest {
			t.Errorf("%s: %d", body, got)
		}
	}
	if got := r.change("alice", p.stream, `{"topics":["record:aaa"],"watch":[]}`); got != http.StatusNoContent {
		t.Fatalf("change of topics: got status %d", got)
	}
	r.note(audit.Draft{Kind: audit.File, Sandbox: "aaa"})
	if e := p.next(); e.name != "entry" || e.id != "1" {
		t.Errorf("event after the change of topics: got %+v", e)
	}
	p.close()
	if got := r.change("alice", "ABC", `{"topics":[]}`); got != http.StatusNotFound {
		t.Errorf("change of an unknown stream: got status %d, want 404", got)
	}
}

// TestStreamResumesWithoutGaps checks that a page whose stream broke gets every entry once, also if
// the server was restarted.
func TestStreamResumesWithoutGaps(t *testing.T) {
	dir, b := filepath.Join(t.TempDir(), "record"), &sandboxes{}
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
				t.Fatalf("event of an entry: got %+v", e)
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
	note(700) // more than a batch
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
		t.Errorf("resume with a number of another audit log: got %+v, want a gap", e)
	}
}

// TestLongAbsenceReportsGap checks that a page that was away for too long is notified of the gap,
// and gets the newest entries.
func TestLongAbsenceReportsGap(t *testing.T) {
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
		t.Fatalf("first event: got %+v", e)
	}
	for want := 1000; want < n; want++ {
		if e := p.next(); e.id != strconv.Itoa(want) {
			t.Fatalf("%+v, want %d", e, want)
		}
	}
}

// TestHeartbeatHasPosition checks that a stream without events sends heartbeats with its position.
func TestHeartbeatHasPosition(t *testing.T) {
	r := newRigOn(t, openRecord(t, filepath.Join(t.TempDir(), "record")), &sandboxes{}, func(d *live.Deps) { d.Heartbeat = time.Millisecond })
	r.note(audit.Draft{Kind: audit.ServerStarted})
	p := r.open("topics=approvals", "")
	for p.next().name != "approvals" {
	}
	for range 3 {
		e, err := p.read()
		if err != nil || e.name != "beat" || e.data != "{}" {
			t.Fatalf("event on an idle stream: got %+v, %v", e, err)
		}
	}
	r.note(audit.Draft{Kind: audit.ServerStarted})
	for p.lastID != "1" {
		if _, err := p.read(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHostileTextStaysInEvent checks that text that a sandbox chose cannot end a line, begin
// another event or be invalid UTF-8.
func TestHostileTextStaysInEvent(t *testing.T) {
	r := newRig(t)
	evil := fakeSandbox("aaa")
	evil.Name = "x\n\nevent: hello\ndata: {}\n\n\u202e<script>\xff"
	evil.Metadata = map[string]string{"k\r\n": "</script>\x00"}
	r.sandboxes.put(evil)
	p := r.open("topics=fleet", "")
	e := p.next()
	f := rowsOf(t, e)
	if e.name != "fleet" || len(f.Sandboxes) != 1 || !strings.HasPrefix(f.Sandboxes[0].Name, "x\n\nevent: hello") || strings.Contains(e.data, "<script>") {
		t.Errorf("event of the fleet: got %q", e.data)
	}
}

// TestStreamLimitsAndClose checks the number of streams, invalid requests, and that a closed Live
// reads nothing.
func TestStreamLimitsAndClose(t *testing.T) {
	r := newRig(t)
	var pages []*page
	for range 32 {
		pages = append(pages, r.open("topics=fleet", ""))
	}
	if p := r.subscribe("alice", "topics=fleet", ""); p.res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one stream too many: got status %d, want 429", p.res.StatusCode)
	}
	if p := r.subscribe("bob", "topics=fleet", ""); p.res.StatusCode != http.StatusOK {
		t.Errorf("stream of another session: got status %d, want 200", p.res.StatusCode)
	}
	for i, q := range []string{"topics=x", "after=x", "after=-2", "watch=..", "color=red", "topics=a&topics=b", "topics=" + strings.Repeat("fleet,", 65)} {
		if p := r.subscribe("carol", q, ""); p.res.StatusCode != http.StatusBadRequest {
			t.Errorf("invalid request %d (%.20s): got status %d, want 400", i, q, p.res.StatusCode)
		}
	}
	for _, p := range pages {
		p.until("fleet", anyData)
	}
	r.live.Close()
	for _, p := range pages {
		for {
			if _, err := p.read(); err != nil {
				break
			}
		}
	}
	before := r.sandboxes.lists.Load()
	if p := r.subscribe("alice", "topics=fleet", ""); p.res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("stream after Close: got status %d, want 503", p.res.StatusCode)
	}
	if after := r.sandboxes.lists.Load(); after != before {
		t.Errorf("sandboxes were listed %d times after Close, want 0", after-before)
	}
}
