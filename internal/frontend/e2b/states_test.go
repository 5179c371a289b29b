package e2b_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

func pause(t testing.TB, h http.Handler, id string) {
	t.Helper()
	if w := do(h, "POST", "/sandboxes/"+id+"/pause", `{"memory":true}`); w.Code != http.StatusNoContent || w.Body.Len() != 0 {
		t.Fatalf("pause: %d %s", w.Code, w.Body)
	}
}

func TestPauseSandbox(t *testing.T) {
	for body, filesOnly := range map[string]bool{``: false, `{}`: false, `{"memory":null}`: false, `{"memory":true}`: false, `{"memory":false}`: true} {
		sandboxes, h := newAPI(t)
		id := create(t, h, `{"templateID":"base"}`)
		w := do(h, "POST", "/sandboxes/"+id+"/pause", body)
		if w.Code != http.StatusNoContent || w.Body.Len() != 0 || sandboxes.filesOnly != filesOnly {
			t.Errorf("%q: %d %s, files only %v", body, w.Code, w.Body, sandboxes.filesOnly)
		}
		wantFailure(t, do(h, "POST", "/sandboxes/"+id+"/pause", body), http.StatusConflict, "sandbox_paused", "is paused")
	}
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base"}`)
	wantFailure(t, do(h, "POST", "/sandboxes/"+unknownID+"/pause", ``), http.StatusNotFound, "sandbox_not_found", "doesn't exist")
	wantFailure(t, do(h, "POST", "/sandboxes/"+id+"/pause", `{"memory":"no"}`), http.StatusBadRequest, "field_invalid", "memory")
	wantFailure(t, do(h, "POST", "/sandboxes/"+id+"/pause", `[]`), http.StatusBadRequest, "body_invalid", "")
	if sandboxes.list[0].State != sandbox.Running {
		t.Error("a rejected request paused the sandbox")
	}
	sandboxes.fail = fault.New(fault.Unavailable, "busy", "try again")
	wantFailure(t, do(h, "POST", "/sandboxes/"+id+"/pause", ``), http.StatusServiceUnavailable, "busy", "try again")
	sandboxes.fail = nil
	// Clients take status 409 as "already paused", which they do not report as a failure.
	sandboxes.failState = fault.New(fault.Conflict, "snapshot_programs_changed", "programs have changed")
	wantFailure(t, do(h, "POST", "/sandboxes/"+id+"/pause", ``), http.StatusServiceUnavailable, "snapshot_programs_changed", "programs have changed")
	sandboxes.failState = fault.New(fault.Conflict, sandbox.CodeRemoved, "removed in between")
	for _, path := range []string{"pause", "fork", "snapshots"} {
		wantFailure(t, do(h, "POST", "/sandboxes/"+id+"/"+path, `{}`), http.StatusNotFound, "sandbox_not_found", "doesn't exist")
	}
}

func TestPausedSandboxIsVisible(t *testing.T) {
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base","timeout":1000,"autoPause":true,"autoResume":{"enabled":true}}`)
	pause(t, h, id)
	got := object(t, do(h, "GET", "/sandboxes/"+id, ""))
	if got["state"] != "paused" || got["envdAccessToken"] != "token1" {
		t.Errorf("info shows %v", got)
	}
	at, err := time.Parse(time.RFC3339Nano, got["endAt"].(string))
	if err != nil || !at.Equal(sandboxes.list[0].PausedAt.Truncate(time.Microsecond)) {
		t.Errorf("got endAt %v, want the time of the pause, %v", got["endAt"], sandboxes.list[0].PausedAt)
	}
	if l := got["lifecycle"].(map[string]any); l["onTimeout"] != "pause" || l["autoResume"] != true {
		t.Errorf("lifecycle = %v", l)
	}
	for query, want := range map[string][]string{
		"": {id}, "state=paused": {id}, "state=running": {}, "state=running,paused": {id}, "state=paused&state=running": {id},
	} {
		w := do(h, "GET", "/v2/sandboxes?"+query, "")
		if ids := listed(t, w); !equal(ids, want) {
			t.Errorf("%q lists %v", query, ids)
		}
		if total := w.Header().Get("X-Total-Running"); total != map[bool]string{true: "", false: "0"}[query == "state=paused"] {
			t.Errorf("%q: X-Total-Running %q", query, total)
		}
	}
	if ids := listed(t, do(h, "GET", "/sandboxes", "")); len(ids) != 0 {
		t.Errorf("the list of the first version, which has only running sandboxes, contains %v", ids)
	}
	// Calls that need a running sandbox return "not found" or "paused".
	for path, body := range map[string]string{"timeout": `{"timeout":9}`, "refreshes": ``, "snapshots": `{}`} {
		wantFailure(t, do(h, "POST", "/sandboxes/"+id+"/"+path, body), http.StatusNotFound, "sandbox_not_found", "doesn't exist")
	}
	wantFailure(t, do(h, "POST", "/sandboxes/"+id+"/fork", ``), http.StatusConflict, "sandbox_paused", "is paused")
	wantFailure(t, do(h, "PUT", "/sandboxes/"+id+"/network", `{}`), http.StatusConflict, "sandbox_paused", "is paused")
	if w := do(h, "GET", "/sandboxes/"+id+"/metrics", ""); w.Code != http.StatusOK || w.Body.String() != "[]" {
		t.Errorf("metrics: %d %s", w.Code, w.Body)
	}
	if w := do(h, "GET", "/v2/sandboxes/"+id+"/logs", ""); w.Code != http.StatusOK {
		t.Errorf("logs: %d %s", w.Code, w.Body)
	}
	if w := do(h, "DELETE", "/sandboxes/"+id, ""); w.Code != http.StatusNoContent || len(sandboxes.list) != 0 {
		t.Errorf("delete: %d %s", w.Code, w.Body)
	}
}

func TestPausingAndResumingCountAsPaused(t *testing.T) {
	sandboxes, h := newAPI(t)
	sandboxes.fill(1, "k1")
	id := sandboxes.list[0].ID
	for _, state := range []sandbox.State{sandbox.Pausing, sandbox.Resuming} {
		sandboxes.list[0].State = state
		got := object(t, do(h, "GET", "/sandboxes/"+id, ""))
		if got["state"] != "paused" || got["endAt"] != "2026-01-02T04:04:05.678901Z" {
			t.Errorf("state %s: got %v until %v", state, got["state"], got["endAt"])
		}
		if ids := listed(t, do(h, "GET", "/v2/sandboxes?state=paused", "")); len(ids) != 1 {
			t.Errorf("a sandbox in the state %s is not listed as paused", state)
		}
	}
}

func TestConnectResumes(t *testing.T) {
	for _, c := range []struct {
		path, body string
		want       time.Duration
		reboots    int
	}{
		{"/sandboxes/%/connect", `{"timeout":60}`, time.Minute, 0},
		{"/v2/sandboxes/%/connect", `{"timeout":60,"memory":true}`, time.Minute, 0},
		{"/v2/sandboxes/%/connect", `{}`, 5 * time.Minute, 0},
		{"/v2/sandboxes/%/connect", ``, 5 * time.Minute, 0},
		{"/v2/sandboxes/%/connect", `{"timeout":0}`, time.Second, 0},
		{"/sandboxes/%/resume", ``, 15 * time.Second, 0},
		{"/sandboxes/%/resume", `{"timeout":60,"autoPause":false}`, time.Minute, 0},
		{"/sandboxes/%/connect", `{"timeout":60,"memory":false}`, time.Minute, 1},
		{"/v2/sandboxes/%/connect", `{"memory":false}`, 5 * time.Minute, 1},
		{"/sandboxes/%/resume", `{"timeout":60,"memory":false}`, time.Minute, 1},
	} {
		sandboxes, h := newAPI(t)
		id := create(t, h, `{"templateID":"base","timeout":7}`)
		pause(t, h, id)
		before := time.Now()
		w := do(h, "POST", withID(c.path, id), c.body)
		if got := object(t, w); w.Code != http.StatusCreated || got["sandboxID"] != id || got["envdAccessToken"] != "token1" {
			t.Fatalf("%s %s: %d %s", c.path, c.body, w.Code, w.Body)
		}
		if left := time.Until(sandboxes.list[0].EndAt); left > c.want || left < c.want-time.Since(before) {
			t.Errorf("%s %s: %s left, want %s", c.path, c.body, left, c.want)
		}
		// On a running sandbox, connect succeeds, and resume is a conflict.
		want := http.StatusOK
		if c.path == "/sandboxes/%/resume" {
			want = http.StatusConflict
		}
		if w := do(h, "POST", withID(c.path, id), c.body); w.Code != want {
			t.Errorf("second call of %s %s: got %d %s", c.path, c.body, w.Code, w.Body)
		}
		// A running sandbox is not booted again.
		if sandboxes.reboots != c.reboots {
			t.Errorf("%s %s: the sandbox booted again %d times", c.path, c.body, sandboxes.reboots)
		}
	}
}

func withID(path, id string) string {
	for i := range path {
		if path[i] == '%' {
			return path[:i] + id + path[i+1:]
		}
	}
	return path
}

func TestResumeRejectsInvalidRequests(t *testing.T) {
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base"}`)
	end := sandboxes.list[0].EndAt
	wantFailure(t, do(h, "POST", "/sandboxes/"+id+"/resume", `{"timeout":9999}`), http.StatusConflict, "sandbox_running", "already running")
	if !sandboxes.list[0].EndAt.Equal(end) {
		t.Error("a rejected resume changed the end")
	}
	pause(t, h, id)
	wantFailure(t, do(h, "POST", "/sandboxes/"+id+"/resume", `{"timeout":-1}`), http.StatusBadRequest, "timeout_invalid", "Timeout must be")
	wantFailure(t, do(h, "POST", "/sandboxes/"+id+"/resume", `{"autoPause":true}`), http.StatusNotImplemented, "not_supported", "")
	if sandboxes.list[0].State != sandbox.Paused {
		t.Error("a rejected request resumed the sandbox")
	}
	wantFailure(t, do(h, "POST", "/sandboxes/"+unknownID+"/resume", ``), http.StatusNotFound, "sandbox_not_found", "doesn't exist")
	// Another caller resumes the sandbox between the look-up and the resume.
	sandboxes.between = func() { sandboxes.list[0].State = sandbox.Running }
	wantFailure(t, do(h, "POST", "/sandboxes/"+id+"/resume", ``), http.StatusConflict, "sandbox_running", "already running")
}

// TestConnectResumesSandboxPausedMeanwhile checks a sandbox that is paused between the look-up and
// the extension of its lifetime.
func TestConnectResumesSandboxPausedMeanwhile(t *testing.T) {
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base"}`)
	resumes := 0
	sandboxes.between = func() { resumes++ }
	paused := &pausedAfter{memory: sandboxes}
	h = newAPIWith(t, sandboxes, paused)
	w := do(h, "POST", "/v2/sandboxes/"+id+"/connect", ``)
	if w.Code != http.StatusCreated || resumes != 1 {
		t.Errorf("connect: got %d %s after %d resumes, want 201 after 1", w.Code, w.Body, resumes)
	}
}

// pausedAfter pauses a sandbox in its first call of Extend.
type pausedAfter struct {
	*memory
	done bool
}

func (p *pausedAfter) Extend(ctx context.Context, caller sandbox.Principal, id string, d time.Duration) (sandbox.Sandbox, error) {
	if !p.done {
		p.done = true
		if _, err := p.Pause(ctx, caller, id, false); err != nil {
			return sandbox.Sandbox{}, err
		}
	}
	return p.memory.Extend(ctx, caller, id, d)
}

func TestCreateOnEnd(t *testing.T) {
	for body, want := range map[string]sandbox.OnEnd{
		``:                   {},
		`,"autoPause":false`: {},
		`,"autoPause":true`:  {Pause: true},
		`,"autoPause":true,"autoPauseMemory":true`:                 {Pause: true},
		`,"autoPause":true,"autoPauseMemory":false`:                {Pause: true, FilesOnly: true},
		`,"autoPause":true,"autoResume":{"enabled":true}`:          {Pause: true, Wake: true},
		`,"autoPauseMemory":true,"autoResume":{"enabled":true}`:    {Wake: true},
		`,"autoPause":true,"autoResume":{"enabled":false}`:         {Pause: true},
		`,"autoPause":true,"autoPauseMemory":null,"autoResume":{}`: {Pause: true},
	} {
		for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
			sandboxes, h := newAPI(t)
			if w := do(h, "POST", path, `{"templateID":"base"`+body+`}`); w.Code != http.StatusCreated || sandboxes.last.OnEnd != want {
				t.Errorf("%s: %d %s, %+v", body, w.Code, w.Body, sandboxes.last.OnEnd)
			}
		}
	}
}

func TestForkSandbox(t *testing.T) {
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base","timeout":1000}`)
	path := "/sandboxes/" + id + "/fork"
	for body, want := range map[string]struct {
		count   int
		timeout time.Duration
	}{
		``: {1, 15 * time.Second}, `{}`: {1, 15 * time.Second}, `{"count":100,"timeout":60}`: {100, time.Minute},
	} {
		before := time.Now()
		w := do(h, "POST", path, body)
		if w.Code != http.StatusCreated {
			t.Fatalf("%q: %d %s", body, w.Code, w.Body)
		}
		made := array(t, w)
		if len(made) != want.count {
			t.Errorf("%q: got %d copies, want %d", body, len(made), want.count)
		}
		for _, one := range made {
			s, _ := one["sandbox"].(map[string]any)
			if s == nil || one["error"] != nil || s["sandboxID"] == id || s["envdAccessToken"] == "token1" || s["envdVersion"] == nil {
				t.Errorf("%q: got copy %v", body, one)
			}
		}
		if left := time.Until(sandboxes.list[len(sandboxes.list)-1].EndAt); left > want.timeout || left < want.timeout-time.Since(before) {
			t.Errorf("%q: %s left", body, left)
		}
	}
	sandboxes.forks = 0
	for body, code := range map[string]string{
		`{"count":0}`: "count_invalid", `{"count":101}`: "count_invalid", `{"count":-1}`: "count_invalid",
		`{"count":1.5}`: "field_invalid", `{"timeout":0}`: "timeout_invalid", `{"timeout":-1}`: "timeout_invalid", `[]`: "body_invalid",
	} {
		wantFailure(t, do(h, "POST", path, body), http.StatusBadRequest, code, "")
	}
	if sandboxes.forks != 0 {
		t.Error("a rejected request forked the sandbox")
	}
	wantFailure(t, do(h, "POST", "/sandboxes/"+unknownID+"/fork", ``), http.StatusNotFound, "sandbox_not_found", "doesn't exist")
}

func TestForkReportsErrorPerCopy(t *testing.T) {
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base"}`)
	sandboxes.failFork = fault.New(fault.Exhausted, "too_many_sandboxes", "no room")
	made := array(t, do(h, "POST", "/sandboxes/"+id+"/fork", `{"count":4}`))
	for i, one := range made {
		if i%2 == 0 {
			if one["sandbox"] == nil || one["error"] != nil {
				t.Errorf("%d: %v", i, one)
			}
			continue
		}
		e, _ := one["error"].(map[string]any)
		if one["sandbox"] != nil || e["code"] != 429.0 || e["message"] != "no room" {
			t.Errorf("%d: %v", i, one)
		}
	}
	sandboxes.failFork = fault.Wrap(http.ErrServerClosed, fault.Internal, "x", "secret cause")
	made = array(t, do(h, "POST", "/sandboxes/"+id+"/fork", `{"count":2}`))
	if e := made[1]["error"].(map[string]any); e["code"] != 500.0 || e["message"] != "internal error" {
		t.Errorf("got internal error %v, want no details", e)
	}
}
