package e2b_test

import (
	"net/http"
	"testing"
	"time"
)

func TestRemoveSandbox(t *testing.T) {
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base"}`)
	w := do(h, "DELETE", "/sandboxes/"+id, "")
	if w.Code != http.StatusNoContent || w.Body.Len() != 0 || len(sandboxes.list) != 0 {
		t.Fatalf("%d %s, %d left", w.Code, w.Body, len(sandboxes.list))
	}
	wantFailure(t, do(h, "DELETE", "/sandboxes/"+id, ""), http.StatusNotFound, "sandbox_not_found", "doesn't exist")
}

func TestSetTimeout(t *testing.T) {
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base"}`)
	path := "/sandboxes/" + id + "/timeout"
	for _, seconds := range []string{"600", "10", "0"} {
		before := time.Now()
		if w := do(h, "POST", path, `{"timeout":`+seconds+`}`); w.Code != http.StatusNoContent || w.Body.Len() != 0 {
			t.Fatalf("%s: %d %s", seconds, w.Code, w.Body)
		}
		want, _ := time.ParseDuration(seconds + "s")
		if left := time.Until(sandboxes.list[0].EndAt); left > want || left < want-time.Since(before) {
			t.Errorf("%s: %s left", seconds, left)
		}
	}
	for body, code := range map[string]string{
		`{"timeout":-1}`: "timeout_invalid", `{"timeout":4294967296}`: "timeout_invalid",
		`{}`: "timeout_missing", `{"timeout":null}`: "timeout_missing", `{"timeout":"1"}`: "field_invalid",
		``: "body_missing", `{"timeout":1`: "body_invalid",
	} {
		wantFailure(t, do(h, "POST", path, body), http.StatusBadRequest, code, "")
	}
	wantFailure(t, do(h, "POST", "/sandboxes/"+unknownID+"/timeout", `{"timeout":1}`), http.StatusNotFound, "sandbox_not_found", "")
}

func TestConnectNeverShortensLifetime(t *testing.T) {
	_, h := newAPI(t)
	id := create(t, h, `{"templateID":"base","timeout":1000}`)
	end := func() any { return object(t, do(h, "GET", "/sandboxes/"+id, ""))["endAt"] }
	before := end()
	for _, c := range []struct{ path, body string }{
		{"/sandboxes/" + id + "/connect", `{"timeout":15}`},
		{"/v2/sandboxes/" + id + "/connect", `{"timeout":15,"memory":false}`},
		{"/v2/sandboxes/" + id + "/connect", `{}`},
		{"/v2/sandboxes/" + id + "/connect", ``},
		{"/v2/sandboxes/" + id + "/connect", `{"timeout":0}`},
	} {
		w := do(h, "POST", c.path, c.body)
		if w.Code != http.StatusOK {
			t.Fatalf("%s %s: %d %s", c.path, c.body, w.Code, w.Body)
		}
		if got := object(t, w); got["sandboxID"] != id || got["envdAccessToken"] != "token1" || got["envdVersion"] == nil {
			t.Errorf("got connect response %v", got)
		}
		if after := end(); after != before {
			t.Errorf("%s %s moved the end from %v to %v", c.path, c.body, before, after)
		}
	}
	do(h, "POST", "/v2/sandboxes/"+id+"/connect", `{"timeout":2000}`)
	if end() == before {
		t.Error("connect with a longer timeout did not extend the lifetime")
	}
}

func TestConnectDefaultTimeout(t *testing.T) {
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base","timeout":1}`)
	before := time.Now()
	do(h, "POST", "/v2/sandboxes/"+id+"/connect", "")
	if left := time.Until(sandboxes.list[0].EndAt); left < 300*time.Second-time.Since(before) || left > 300*time.Second {
		t.Errorf("%s left after a connect without a timeout", left)
	}
	wantFailure(t, do(h, "POST", "/sandboxes/"+id+"/connect", `{}`), http.StatusBadRequest, "timeout_missing", "")
	wantFailure(t, do(h, "POST", "/sandboxes/"+id+"/connect", ``), http.StatusBadRequest, "body_missing", "")
	wantFailure(t, do(h, "POST", "/v2/sandboxes/"+id+"/connect", `{"timeout":-1}`), http.StatusBadRequest, "timeout_invalid", "")
	wantFailure(t, do(h, "POST", "/v2/sandboxes/"+unknownID+"/connect", ``), http.StatusNotFound, "sandbox_not_found", "")
}

func TestRefreshLifetime(t *testing.T) {
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base","timeout":1}`)
	path := "/sandboxes/" + id + "/refreshes"
	for _, c := range []struct {
		body string
		want time.Duration
	}{{``, 15 * time.Second}, {`{"duration":1}`, 15 * time.Second}, {`{"duration":3600}`, time.Hour}} {
		before := time.Now()
		if w := do(h, "POST", path, c.body); w.Code != http.StatusNoContent {
			t.Fatalf("%s: %d %s", c.body, w.Code, w.Body)
		}
		if left := time.Until(sandboxes.list[0].EndAt); left > c.want || left < c.want-time.Since(before) {
			t.Errorf("%q: %s left, want %s", c.body, left, c.want)
		}
	}
	wantFailure(t, do(h, "POST", path, `{"duration":3601}`), http.StatusBadRequest, "duration_invalid", "")
	wantFailure(t, do(h, "POST", path, `{"duration":-1}`), http.StatusBadRequest, "duration_invalid", "")
}
