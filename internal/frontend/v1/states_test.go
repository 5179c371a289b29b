package v1

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// fakeStates stores sandboxes and snapshots in memory, and records the requests.
type fakeStates struct {
	Finder
	Lifetimes
	sb        sandbox.Sandbox
	snapshots []sandbox.Snapshot
	calls     []string
	err       error
	started   chan struct{} // unless nil, closed when a pause begins, which continues
	canceled  chan struct{} // closed when a pause is canceled
}

func (b *fakeStates) record(format string, args ...any) {
	b.calls = append(b.calls, fmt.Sprintf(format, args...))
}

func (b *fakeStates) Get(_ context.Context, _ sandbox.Principal, ref string) (sandbox.Sandbox, error) {
	if ref != b.sb.ID {
		return sandbox.Sandbox{}, sandbox.Unknown(ref)
	}
	return b.sb, nil
}

func (b *fakeStates) Pause(ctx context.Context, _ sandbox.Principal, ref string, filesOnly bool) (sandbox.Sandbox, error) {
	b.record("pause %s %v", ref, filesOnly)
	if b.canceled != nil {
		close(b.started)
		<-ctx.Done()
		close(b.canceled)
		return b.sb, ctx.Err()
	}
	b.sb.State, b.sb.PausedAt = sandbox.Paused, time.Unix(1000, 0)
	return b.sb, b.err
}

func (b *fakeStates) Resume(_ context.Context, _ sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, bool, error) {
	b.record("resume %s %v", ref, d)
	b.sb.State, b.sb.PausedAt = sandbox.Running, time.Time{}
	return b.sb, true, b.err
}

func (b *fakeStates) ResumeFiles(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, bool, error) {
	b.record("without memory")
	return b.Resume(ctx, caller, ref, d)
}

func (b *fakeStates) Fork(_ context.Context, _ sandbox.Principal, ref string, req sandbox.ForkRequest) ([]sandbox.Fork, error) {
	b.record("fork %s %d %v %v %v", ref, req.Count, req.Timeout, req.Forever, req.Ephemeral)
	forks := make([]sandbox.Fork, req.Count)
	for i := range forks {
		forks[i].Sandbox = sandbox.Sandbox{ID: fmt.Sprint("c", i), State: sandbox.Running, AccessToken: "t", Parent: ref}
	}
	if len(forks) > 2 {
		forks[1] = sandbox.Fork{Err: fault.New(fault.Exhausted, "too_many_sandboxes", "no more")}
		forks[2] = sandbox.Fork{Err: errors.New("password is hunter2")}
	}
	return forks, b.err
}

func (b *fakeStates) Rollback(_ context.Context, _ sandbox.Principal, ref, snapshot string) (sandbox.Sandbox, error) {
	b.record("rollback %s %s", ref, snapshot)
	return b.sb, b.err
}

func (b *fakeStates) Reset(_ context.Context, _ sandbox.Principal, ref string) (sandbox.Sandbox, error) {
	b.record("reset %s", ref)
	return b.sb, b.err
}

func (b *fakeStates) Snapshot(_ context.Context, _ sandbox.Principal, ref string, req sandbox.SnapshotRequest) (sandbox.Snapshot, error) {
	b.record("snapshot %s %s %v", ref, req.Name, req.FilesOnly)
	return sandbox.Snapshot{ID: "s1", Name: req.Name, Sandbox: ref, Bytes: 7, FilesOnly: req.FilesOnly}, b.err
}

func (b *fakeStates) Snapshots(_ context.Context, _ sandbox.Principal, f sandbox.SnapshotFilter) (sandbox.SnapshotPage, error) {
	b.record("snapshots %s %s %d %s", f.Sandbox, f.Name, f.Limit, f.AfterID)
	rest := b.snapshots
	for i, s := range rest {
		if s.ID == f.AfterID {
			rest = rest[i+1:]
			break
		}
	}
	n := min(len(rest), f.Limit)
	return sandbox.SnapshotPage{Snapshots: rest[:n], More: n < len(rest)}, b.err
}

func (b *fakeStates) FindSnapshot(_ context.Context, _ sandbox.Principal, ref string) (sandbox.Snapshot, error) {
	return sandbox.Snapshot{}, fault.Newf(fault.NotFound, "snapshot_not_found", "there is no snapshot %q", ref)
}

func (b *fakeStates) RemoveSnapshot(_ context.Context, _ sandbox.Principal, ref string) error {
	b.record("remove %s", ref)
	return b.err
}

func newFakeStates(t *testing.T) (*rig, *fakeStates) {
	t.Helper()
	r := newRig(t)
	b := &fakeStates{sb: sandbox.Sandbox{
		ID: "i1", State: sandbox.Running, AccessToken: "t", Origin: "s0", At: "s1", Parent: "i0",
		OnEnd: sandbox.OnEnd{Pause: true, FilesOnly: true},
	}}
	deps := r.deps
	deps.Finder, deps.Lifetimes, deps.States, deps.Snapshots = b, b, b, b
	r.with(deps)
	return r, b
}

func TestStates(t *testing.T) {
	r, b := newFakeStates(t)
	for _, test := range []struct {
		method, path, body string
		status             int
		calls              string
	}{
		{"POST", "/v1/sandboxes/i1/pause", ``, 200, "pause i1 false"},
		{"POST", "/v1/sandboxes/i1/pause", `{"files_only":true}`, 200, "pause i1 true"},
		{"POST", "/v1/sandboxes/i1/resume", ``, 200, "resume i1 0s"},
		{"POST", "/v1/sandboxes/i1/resume", `{"timeout_seconds":90}`, 200, "resume i1 1m30s"},
		{"POST", "/v1/sandboxes/i1/fork", ``, 201, "fork i1 1 0s false false"},
		{"POST", "/v1/sandboxes/i1/fork", `{"count":2,"timeout_seconds":1.5,"ephemeral":true}`, 201, "fork i1 2 1.5s false true"},
		{"POST", "/v1/sandboxes/i1/fork", `{"forever":true}`, 201, "fork i1 1 0s true false"},
		{"POST", "/v1/sandboxes/i1/rollback", `{"snapshot":"clean"}`, 200, "rollback i1 clean"},
		{"POST", "/v1/sandboxes/i1/reset", ``, 200, "reset i1"},
		{"POST", "/v1/sandboxes/i1/snapshots", ``, 201, "snapshot i1  false"},
		{"POST", "/v1/sandboxes/i1/snapshots", `{"name":"clean","files_only":true}`, 201, "snapshot i1 clean true"},
		{"GET", "/v1/snapshots?sandbox=i1&name=clean&limit=5", ``, 200, "snapshots i1 clean 5 "},
		{"DELETE", "/v1/snapshots/clean", ``, 204, "remove clean"},
		{"GET", "/v1/snapshots/none", ``, 404, ""},
		{"POST", "/v1/sandboxes/i1/pause", `{"bogus":1}`, 400, ""},
		{"POST", "/v1/sandboxes/i1/pause", `[]`, 400, ""},
		{"POST", "/v1/sandboxes/i1/resume", `{"timeout_seconds":-1}`, 400, ""},
		{"POST", "/v1/sandboxes/i1/resume", `{"timeout_seconds":1e300}`, 400, ""},
		{"POST", "/v1/sandboxes/i1/fork", `{"count":101}`, 400, ""},
		{"POST", "/v1/sandboxes/i1/fork", `{"count":-1}`, 400, ""},
		{"POST", "/v1/sandboxes/i1/fork", `{"count":0}`, 400, ""}, // no copies is not one
		{"POST", "/v1/sandboxes/i1/fork", `{}`, 201, "fork i1 1 0s false false"},
		{"POST", "/v1/sandboxes/i1/fork", `{"count":1.5}`, 400, ""},
		{"POST", "/v1/sandboxes/i1/rollback", ``, 400, ""},
		{"POST", "/v1/sandboxes/i1/rollback", `{"snapshot":""}`, 400, ""},
		{"POST", "/v1/sandboxes/i1/snapshots", `{"name":"` + strings.Repeat("a", 300) + `"}`, 400, ""},
		{"GET", "/v1/snapshots?cursor=AAAA", ``, 400, ""},
		{"GET", "/v1/snapshots?bogus=1", ``, 400, ""},
	} {
		b.calls = nil
		code, p := r.call(test.method, test.path, test.body, nil)
		if calls := strings.Join(b.calls, ";"); code != test.status || calls != test.calls {
			t.Errorf("%s %s %.40s: %d %q %s, want %d %q", test.method, test.path, test.body, code, calls, p.Detail, test.status, test.calls)
		}
	}
	b.err = fault.New(fault.Conflict, "sandbox_paused", "it is paused")
	for _, route := range everyRoute[16:22] {
		body := map[string]string{"/v1/sandboxes/i1/rollback": `{"snapshot":"s"}`}[route[1]]
		if code, p := r.call(route[0], route[1], body, nil); code != 409 || p.Code != "sandbox_paused" {
			t.Errorf("%v: %d %+v", route, code, p)
		}
	}
}

func TestPausedSandbox(t *testing.T) {
	r, _ := newFakeStates(t)
	var sb api.Sandbox
	r.call("POST", "/v1/sandboxes/i1/pause", "", &sb)
	if sb.State != "paused" || sb.PausedAt == nil || sb.PausedAt.Unix() != 1000 || sb.AccessToken != "t" ||
		sb.Origin != "s0" || sb.At != "s1" || sb.Parent != "i0" || sb.OnEnd == nil || *sb.OnEnd != (api.OnEnd{Pause: true, FilesOnly: true}) {
		t.Errorf("POST /v1/sandboxes/i1/pause: got %+v", sb)
	}
}

// Each copy has its own result, and an internal error shows no more in it than in any other
// response.
func TestForksFailSeparately(t *testing.T) {
	r, _ := newFakeStates(t)
	var list api.ForkList
	if code, _ := r.call("POST", "/v1/sandboxes/i1/fork", `{"count":4}`, &list); code != http.StatusCreated || len(list.Forks) != 4 {
		t.Fatalf("POST /v1/sandboxes/i1/fork: got %d %+v", code, list)
	}
	f := list.Forks
	if f[0].Sandbox == nil || f[0].Sandbox.ID != "c0" || f[0].Sandbox.AccessToken != "t" || f[0].Error != nil || f[3].Sandbox == nil {
		t.Errorf("forks: got %+v", f)
	}
	if f[1].Sandbox != nil || f[1].Error == nil || f[1].Error.Code != "too_many_sandboxes" || f[1].Error.Status != 429 {
		t.Errorf("second fork: got %+v", f[1])
	}
	if f[2].Error == nil || f[2].Error.Kind != "internal" || strings.Contains(f[2].Error.Detail, "hunter2") {
		t.Errorf("third fork: got error %+v", f[2].Error)
	}
	if !strings.Contains(r.log.String(), "hunter2") {
		t.Error("the log does not have the cause")
	}
}

func TestSnapshotPages(t *testing.T) {
	r, b := newFakeStates(t)
	for i := range 5 {
		b.snapshots = append(b.snapshots, sandbox.Snapshot{ID: fmt.Sprint("s", i), CreatedAt: time.Unix(int64(100-i), 0)})
	}
	var seen []string
	path := "/v1/snapshots?limit=2"
	for range 4 {
		var list api.SnapshotList
		r.call("GET", path, "", &list)
		for _, s := range list.Snapshots {
			seen = append(seen, s.ID)
		}
		if list.NextCursor == "" {
			break
		}
		path = "/v1/snapshots?limit=2&cursor=" + list.NextCursor
	}
	if got := strings.Join(seen, " "); got != "s0 s1 s2 s3 s4" {
		t.Errorf("pages of snapshots: got %v", got)
	}
}

func TestCreateWithOnEnd(t *testing.T) {
	for body, want := range map[string]string{
		`{"on_end":{"wake":true}}`: "", `{"on_end":{}}`: "",
		`{"on_end":{"pause":true,"files_only":true,"wake":true}}`: "on_end_invalid", `{"on_end":{"files_only":true}}`: "on_end_invalid",
		`{"on_end":{"pauze":true}}`: "invalid_request", `{"on_end":"pause"}`: "invalid_request",
	} {
		r := newRig(t)
		var sb api.Sandbox
		_, p := r.call("POST", "/v1/sandboxes", body, &sb)
		if p.Code != want {
			t.Errorf("%s: %q %s", body, p.Code, p.Detail)
		}
	}
}

// A command is traffic: it resumes a sandbox that traffic resumes, and no other.
func TestExecInPausedSandbox(t *testing.T) {
	r, b := newFakeStates(t)
	b.sb.State = sandbox.Paused
	if code, p := r.call("POST", "/v1/sandboxes/i1/exec", `{"cmd":["true"]}`, nil); code != 409 || p.Code != "sandbox_paused" || len(b.calls) > 0 {
		t.Errorf("POST /v1/sandboxes/i1/exec: got %d %+v %v", code, p, b.calls)
	}
	b.sb.OnEnd.Wake = true
	r.call("POST", "/v1/sandboxes/i1/exec", `{"cmd":["true"]}`, nil)
	if got := strings.Join(b.calls, ";"); got != "resume i1 0s" {
		t.Errorf("calls: %q", got)
	}
	b.sb.State, b.calls = sandbox.Stopped, nil
	if code, p := r.call("POST", "/v1/sandboxes/i1/exec", `{"cmd":["true"]}`, nil); code != 409 || p.Code != "not_running" || len(b.calls) > 0 {
		t.Errorf("POST /v1/sandboxes/i1/exec: got %d %+v %v", code, p, b.calls)
	}
}

// If the client closes the request, the operation is canceled.
func TestClosedRequestIsCanceled(t *testing.T) {
	r, b := newFakeStates(t)
	b.started, b.canceled = make(chan struct{}), make(chan struct{})
	srv := httptest.NewServer(r.handler)
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		select {
		case <-b.started:
			cancel()
		case <-ctx.Done():
		}
	}()
	req, err := http.NewRequestWithContext(ctx, "POST", srv.URL+"/v1/sandboxes/i1/pause", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", secret)
	req.Header.Set("Content-Type", "application/json")
	if res, err := http.DefaultClient.Do(req); err == nil {
		res.Body.Close()
		t.Fatalf("it returned %s", res.Status)
	}
	select {
	case <-b.canceled:
	case <-hosttest.Late():
		t.Fatal("the pause continues")
	}
}
