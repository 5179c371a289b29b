package v1

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// keySandboxes contains the sandboxes of the key. No other method of the interface is called.
type keySandboxes struct {
	ids map[string]bool
}

func (o keySandboxes) Get(_ context.Context, caller sandbox.Principal, ref string) (sandbox.Sandbox, error) {
	if caller.Local && strings.HasPrefix(ref, "box") || o.ids[ref] {
		return sandbox.Sandbox{ID: ref}, nil
	}
	return sandbox.Sandbox{}, fault.Newf(fault.NotFound, "sandbox_not_found", "there is no sandbox %s", ref)
}

func (o keySandboxes) List(_ context.Context, _ sandbox.Principal, f sandbox.Filter) (sandbox.Page, error) {
	var page sandbox.Page
	if f.AfterID == "" {
		for id := range o.ids {
			page.Sandboxes = append(page.Sandboxes, sandbox.Sandbox{ID: id})
		}
	}
	return page, nil
}

// newRecordRig returns the API on a real audit log, the log, and the sandboxes of the key k1.
func newRecordRig(t *testing.T) (*rig, *audit.Log, keySandboxes) {
	t.Helper()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(t.TempDir(), "record"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, caller: sandbox.Principal{KeyID: "k1"}}
	mine := keySandboxes{ids: map[string]bool{"box1": true}}
	r.with(Deps{
		Finder: mine, Audit: l, Log: slog.New(slog.DiscardHandler),
		Auth: func(*http.Request) (sandbox.Principal, error) { return r.caller, nil },
	})
	return r, l, mine
}

func appendEntries(t *testing.T, l *audit.Log, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		d := audit.Draft{Kind: audit.Exec, Sandbox: fmt.Sprintf("box%d", i%3), Data: i}
		if i%4 == 0 {
			d.Kind = audit.SandboxPaused
		}
		if i%7 == 0 {
			d = audit.Draft{Kind: audit.Action, Data: i}
		}
		if err := l.Append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *rig) entries(query string) (out []int64, next string) {
	r.t.Helper()
	var list api.EntryList
	if code, p := r.call("GET", "/v1/record?"+query, "", &list); code != 200 {
		r.t.Fatalf("%s: %d %+v", query, code, p)
	}
	for _, e := range list.Entries {
		out = append(out, e.Seq)
	}
	return out, list.NextCursor
}

func TestRecordPages(t *testing.T) {
	r, l, _ := newRecordRig(t)
	r.caller = sandbox.Principal{Local: true}
	appendEntries(t, l, 0, 25)
	for _, c := range []struct {
		query string
		want  []int64
	}{
		{"limit=3", []int64{0, 1, 2}},
		{"after=0&limit=2", []int64{1, 2}},
		{"after=-1&limit=1", []int64{0}},
		{"newest=true&limit=2", []int64{23, 24}},
		{"newest=true&limit=2&before=23", []int64{21, 22}},
		{"newest=true&limit=9&before=5&kind=action", []int64{0}},
		{"before=3", []int64{0, 1, 2}},
		{"sandbox=box1&limit=3", []int64{1, 4, 10}},
		{"kind=action", []int64{0, 7, 14, 21}},
		{"kind=sandbox", []int64{4, 8, 12, 16, 20, 24}},
		{"kind=action,sandbox.paused&limit=3", []int64{0, 4, 7}},
		{"since=2100-01-01T00:00:00Z", nil},
		{"until=2000-01-01T00:00:00Z", nil},
	} {
		if got, _ := r.entries(c.query); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.query, got, c.want)
		}
	}
	var all []int64
	for query := "limit=10"; ; {
		got, next := r.entries(query)
		all = append(all, got...)
		if next == "" {
			break
		}
		query = "limit=10&cursor=" + next
	}
	if len(all) != 25 || !slices.IsSorted(all) {
		t.Errorf("by pages: %v", all)
	}
	for _, query := range []string{"limit=1001", "cursor=x", "since=soon", "after=-2", "what=1", "before=-1", "before=3&follow=true"} {
		if code, _ := r.call("GET", "/v1/record?"+query, "", nil); code < 400 || code > 499 {
			t.Errorf("%s: %d", query, code)
		}
	}
}

// P2: no caller learns of another key's sandbox, not even from the audit log.
func TestKeySeesOnlyItsOwnEntries(t *testing.T) {
	r, l, mine := newRecordRig(t)
	appendEntries(t, l, 0, 20)
	for _, c := range []struct {
		query string
		want  []int64
	}{
		{"", []int64{1, 4, 10, 13, 16, 19}}, {"kind=action", nil}, {"sandbox=box1&limit=1", []int64{1}}, {"newest=true&limit=1", []int64{19}},
	} {
		if got, _ := r.entries(c.query); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.query, got, c.want)
		}
	}
	// Another key's sandbox gives the same answer as one that does not exist.
	for _, id := range []string{"box2", "abcdefghijklmnopqrst", "none"} {
		if code, p := r.call("GET", "/v1/record?sandbox="+id, "", nil); code != 404 || p.Code != "sandbox_not_found" {
			t.Errorf("%s: %d %+v", id, code, p)
		}
	}
	delete(mine.ids, "box1")
	if got, _ := r.entries(""); len(got) != 0 {
		t.Errorf("a key without sandboxes sees %v", got)
	}
	for _, route := range [][2]string{{"GET", "/v1/record/key"}, {"POST", "/v1/record/verify"}, {"GET", "/v1/record/1/proof"}, {"GET", "/v1/record/export"}} {
		body := ""
		if route[0] == "POST" {
			body = "{}"
		}
		if code, p := r.call(route[0], route[1], body, nil); code != 403 || p.Code != "local_only" {
			t.Errorf("%v: %d %+v", route, code, p)
		}
	}
	var c api.Checkpoint
	for path, old := range map[string]string{"/v1/audit/tree-head": "/v1/record/checkpoint", "/v1/audit?limit=5": "/v1/record?limit=5"} {
		var now, before any
		if code, _ := r.call("GET", path, "", &now); code != 200 {
			t.Errorf("%s: %d", path, code)
		}
		if code, _ := r.call("GET", old, "", &before); code != 200 || !reflect.DeepEqual(now, before) {
			t.Errorf("%s answers %v, and %s %d %v", path, now, old, code, before)
		}
	}
	if code, _ := r.call("GET", "/v1/record/checkpoint", "", &c); code != 200 || c.Size != 20 || c.Note == "" {
		t.Errorf("tree head: %d %+v", code, c)
	}
}

// P2: a key that follows the audit log gets the entries of its own sandboxes, also of those that it
// creates while it follows, and no others.
func TestFollowRecord(t *testing.T) {
	r, l, _ := newRecordRig(t)
	appendEntries(t, l, 0, 8)
	server := httptest.NewServer(r.handler)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follow := func(query string) func() int64 {
		req, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/v1/record?follow=true&"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || ct != "application/x-ndjson" {
			t.Fatalf("answer: got %d %s", resp.StatusCode, ct)
		}
		in := json.NewDecoder(bufio.NewReader(resp.Body))
		return func() int64 {
			var e api.Entry
			if err := in.Decode(&e); err != nil {
				t.Fatal(err)
			}
			return e.Seq
		}
	}
	all, newest, one := follow(""), follow("newest=true&limit=1"), follow("sandbox=box1&newest=true&limit=1")
	expect := func(name string, next func() int64, want ...int64) {
		t.Helper()
		for _, w := range want {
			if got := next(); got != w {
				t.Fatalf("%s: %d, want %d", name, got, w)
			}
		}
	}
	expect("all", all, 1, 4)
	expect("newest", newest, 4)
	expect("one", one, 4)
	appendEntries(t, l, 8, 17)
	expect("all", all, 10, 13, 16)
	expect("newest", newest, 10, 13, 16)
	expect("one", one, 10, 13, 16)
}

func TestVerifyProveAndExport(t *testing.T) {
	r, l, _ := newRecordRig(t)
	r.caller = sandbox.Principal{Local: true}
	appendEntries(t, l, 0, 9)
	var c api.Checkpoint
	r.call("GET", "/v1/record/checkpoint", "", &c)
	appendEntries(t, l, 9, 12)
	body, err := json.Marshal(api.VerifyRecord{Against: []string{c.Note}})
	if err != nil {
		t.Fatal(err)
	}
	var v api.Verification
	if code, p := r.call("POST", "/v1/record/verify", string(body), &v); code != 200 || !v.OK || v.Entries != 12 {
		t.Errorf("verify: %d %+v %+v", code, v, p)
	}
	if r.call("POST", "/v1/record/verify", `{"against":["nonsense"]}`, &v); v.OK || v.Fault != "unsigned" {
		t.Errorf("verify against nonsense: %+v", v)
	}
	var p api.Proof
	if code, _ := r.call("GET", "/v1/record/5/proof", "", &p); code != 200 || p.Seq != 5 || p.Key != l.Key() {
		t.Errorf("proof: %d %+v", code, p)
	}
	if code, _ := r.call("GET", "/v1/record/99/proof", "", nil); code != 404 {
		t.Errorf("proof of nothing: %d", code)
	}
	var key api.RecordKey
	if r.call("GET", "/v1/record/key", "", &key); key.Key != l.Key() {
		t.Errorf("key %+v", key)
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/record/export?sandbox=box1", nil))
	data, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := audit.VerifyFile(strings.NewReader(string(data)), l.Key(), c.Note); err == nil && !v.OK || v.Entries == 0 && err == nil {
		t.Errorf("export: %+v, %v", v, err)
	}
	if v, err := audit.VerifyFile(strings.NewReader(string(data)), l.Key()); err != nil || !v.OK || v.Entries != 3 {
		t.Errorf("export: %+v, %v\n%s", v, err, data)
	}
}
