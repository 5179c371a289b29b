package ingress_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
	"github.com/crannog/crannog/internal/guest/codec"
	fspb "github.com/crannog/crannog/internal/guest/gen/filesystempb"
	"github.com/crannog/crannog/internal/guest/gen/filesystempb/filesystempbconnect"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
)

// fakeFilesystem is a guest's file system service whose results depend on the paths.
type fakeFilesystem struct {
	filesystempbconnect.UnimplementedFilesystemHandler
	calls []string
}

func (d *fakeFilesystem) call(what, path string) error {
	d.calls = append(d.calls, what)
	if strings.HasPrefix(path, "/absent") {
		return connect.NewError(connect.CodeNotFound, errors.New("path not found"))
	}
	return nil
}

func (d *fakeFilesystem) MakeDir(_ context.Context, r *connect.Request[fspb.MakeDirRequest]) (*connect.Response[fspb.MakeDirResponse], error) {
	entry := &fspb.EntryInfo{Name: "n", Path: r.Msg.GetPath()}
	return connect.NewResponse(&fspb.MakeDirResponse{Entry: entry}), d.call("mkdir", r.Msg.GetPath())
}

func (d *fakeFilesystem) Move(_ context.Context, r *connect.Request[fspb.MoveRequest]) (*connect.Response[fspb.MoveResponse], error) {
	return connect.NewResponse(&fspb.MoveResponse{}), d.call("move", r.Msg.GetSource())
}

func (d *fakeFilesystem) Remove(_ context.Context, r *connect.Request[fspb.RemoveRequest]) (*connect.Response[fspb.RemoveResponse], error) {
	return connect.NewResponse(&fspb.RemoveResponse{}), d.call("remove", r.Msg.GetPath())
}

func (d *fakeFilesystem) Stat(context.Context, *connect.Request[fspb.StatRequest]) (*connect.Response[fspb.StatResponse], error) {
	return connect.NewResponse(&fspb.StatResponse{}), d.call("stat", "")
}

func (x *observedProxy) fakeFilesystem() *fakeFilesystem {
	d := &fakeFilesystem{}
	mux := http.NewServeMux()
	path, handler := filesystempbconnect.NewFilesystemHandler(d, codec.Options(64<<20)...)
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Access-Token") != "token-"+boxID {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
	mux.HandleFunc("POST /files/compose", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("fail") != "" {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	x.serve(boxID, guestboot.Port, mux)
	return d
}

// P33: every change of files that a caller requests from the guest has one entry, in every
// encoding, with its result and without secrets. A request that only reads has none.
func TestFileChangesAreRecorded(t *testing.T) {
	x := newObservedProxy(t)
	x.setRedactor(valueMask(t))
	d := x.fakeFilesystem()
	n := 0
	for name, options := range dialects {
		client := filesystempbconnect.NewFilesystemClient(&tokenClient{addressed{x.front.Client()}}, x.front.URL, options...)
		want := func(what string, err error, code connect.Code, want observe.FileChange) {
			t.Helper()
			n++
			if (err == nil) != (code == 0) || err != nil && connect.CodeOf(err) != code {
				t.Errorf("%s: %s: %v", name, what, err)
			}
			all := dataOf[observe.FileChange](t, x.record, audit.Action)
			if len(all) != n || !reflect.DeepEqual(all[n-1], want) {
				t.Fatalf("%s: %s: %d entries of %d, %+v, want %+v", name, what, len(all), n, all[len(all)-1], want)
			}
		}
		made := connect.NewRequest(&fspb.MakeDirRequest{Path: "/a\x1b/" + sealedValue})
		made.Header().Set("Authorization", "Basic cm9vdDo=")
		_, err := client.MakeDir(t.Context(), made)
		want("mkdir", err, 0, observe.FileChange{Do: "file.mkdir", Outcome: "ok", Path: "/a\x1b/[redacted:KEY]", User: "root"})
		_, err = client.Move(t.Context(), connect.NewRequest(&fspb.MoveRequest{Source: "/absent", Destination: "/b"}))
		want("move", err, connect.CodeNotFound, observe.FileChange{Do: "file.move", Outcome: "not_found", Path: "/absent", To: "/b"})
		_, err = client.Remove(t.Context(), connect.NewRequest(&fspb.RemoveRequest{Path: strings.Repeat("p", 5000)}))
		want("remove", err, 0, observe.FileChange{Do: "file.remove", Outcome: "ok", Path: strings.Repeat("p", 1024) + "…"})
		if _, err = client.Stat(t.Context(), connect.NewRequest(&fspb.StatRequest{Path: "/a"})); err != nil {
			t.Errorf("%s: control: %v", name, err)
		}
	}
	if len(d.calls) != n+len(dialects) {
		t.Errorf("%d of %d calls arrived", len(d.calls), n+len(dialects))
	}
	x.post(t, guestboot.Port, "/files/compose", "application/json", `{"source_paths":["/1","/2"],"destination":"/whole","username":"u"}`, nil)
	x.post(t, guestboot.Port, "/files/compose?fail=1", "application/json", `{"source_paths":["/1"],"destination":"/whole"} x`, nil)
	all := dataOf[observe.FileChange](t, x.record, audit.Action)[n:]
	if want := []observe.FileChange{
		{Do: "file.compose", Outcome: "ok", From: []string{"/1", "/2"}, To: "/whole", User: "u"},
		{Do: "file.compose", Outcome: "http_400", From: []string{"/1"}, To: "/whole"},
	}; !reflect.DeepEqual(all, want) {
		t.Errorf("audit entries: got %+v", all)
	}
	for _, e := range x.record.Entries() {
		if e.Actor != observe.TokenActor {
			t.Errorf("the actor is %s", e.Actor)
		}
	}
}

// A request that cannot be parsed is not passed on, and a change that the audit log refuses is not
// reported as done.
func TestUnrecordedFileChangesFail(t *testing.T) {
	x := newObservedProxy(t)
	d := x.fakeFilesystem()
	for _, body := range []string{"", "{", `{"path":5}`} {
		if res, _ := x.post(t, guestboot.Port, "/filesystem.Filesystem/Remove", "application/json", body, nil); res.StatusCode == http.StatusOK {
			t.Errorf("%q: %d", body, res.StatusCode)
		}
	}
	if res, _ := x.post(t, guestboot.Port, "/filesystem.Filesystem/Remove", "text/plain", "{}", nil); res.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("change in an unknown encoding: got status %d", res.StatusCode)
	}
	if len(d.calls) != 0 || len(x.record.Entries()) != 0 {
		t.Errorf("%q arrived, %v", d.calls, x.record.Entries())
	}
	x.record.Fail(func(d audit.Draft) bool { return d.Kind == audit.Action })
	for _, path := range []string{"/filesystem.Filesystem/Remove", "/files/compose"} {
		if res, body := x.post(t, guestboot.Port, path, "application/json", `{"path":"/a","source_paths":["/a"],"destination":"/b"}`, nil); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
}

// If the response never arrives, the entry states that.
func TestFileChangeWithoutResponse(t *testing.T) {
	x := newObservedProxy(t)
	x.serve(boxID, guestboot.Port, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	x.post(t, guestboot.Port, "/filesystem.Filesystem/Remove", "application/json", `{"path":"/a"}`, nil)
	all := dataOf[observe.FileChange](t, x.record, audit.Action)
	if want := []observe.FileChange{{Do: "file.remove", Path: "/a", Lost: true}}; !reflect.DeepEqual(all, want) {
		t.Errorf("audit entries: got %+v", all)
	}
}

// A request without the sandbox's token is in the audit log as rejected, with its target, and at
// most a few times a minute.
func TestRejectedRequestsAreRecorded(t *testing.T) {
	x := newObservedProxy(t)
	d := x.fakeFilesystem()
	wrong := map[string]string{"X-Access-Token": "wrong"}
	for _, path := range []string{"/filesystem.Filesystem/Remove", "/process.Process/Start"} {
		x.post(t, guestboot.Port, path, "application/json", `{"path":"/a"}`, wrong)
	}
	x.serve(boxID, guestboot.InterpreterPort, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	x.post(t, guestboot.InterpreterPort, "/execute", "application/json", `{"code":"1"}`, wrong)
	got := dataOf[payload.Action](t, x.record, audit.Action)
	if want := []payload.Action{
		{Do: "POST /filesystem.Filesystem/Remove", Outcome: "unauthenticated"}, {Do: "POST /execute", Outcome: "unauthenticated"},
	}; !reflect.DeepEqual(got, want) || x.record.Entries()[0].Actor != "anonymous" {
		t.Errorf("audit entries: got %+v", x.record.Entries())
	}
	for range 1000 {
		x.post(t, guestboot.Port, "/filesystem.Filesystem/Remove", "application/json", `{"path":"/a"}`, wrong)
	}
	if n := len(x.record.Entries()); n != 10 || len(d.calls) != 0 {
		t.Errorf("%d entries of rejected requests, %q arrived", n, d.calls)
	}
	// Rejected requests without an entry are counted.
	x.tap.Close()
	all := dataOf[payload.Action](t, x.record, audit.Action)
	if last := all[len(all)-1]; len(all) != 11 || last.Do != "refused" || last.Count != 1002-10 {
		t.Errorf("%d entries, the last %+v", len(all), last)
	}
}

// A request without the token of a private port is recorded too, without the path, which may be a
// credential of the program inside.
func TestRejectedRequestsToPrivatePorts(t *testing.T) {
	x := newObservedProxy(t)
	x.inside.add(boxID, func(s *sandbox.Sandbox) { s.TrafficToken = "secret" })
	x.serve(boxID, 8000, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it arrived") }))
	x.post(t, 8000, "/capability-in-a-path", "text/plain", "", nil)
	if got := dataOf[payload.Action](t, x.record, audit.Action); !reflect.DeepEqual(got, []payload.Action{{Do: "POST port 8000", Outcome: "denied"}}) {
		t.Errorf("audit entries: got %+v", got)
	}
}

// A request without the token does not resume a paused sandbox, and is in the audit log.
func TestRejectedRequestsToPausedSandboxes(t *testing.T) {
	x := newObservedProxy(t)
	x.inside.add(boxID, resumesOnTraffic)
	x.inside.pause(boxID)
	x.post(t, guestboot.Port, "/filesystem.Filesystem/Remove", "application/json", `{"path":"/a"}`, map[string]string{"X-Access-Token": "wrong"})
	got := dataOf[payload.Action](t, x.record, audit.Action)
	if want := []payload.Action{{Do: "POST port 49983", Outcome: "denied"}}; !reflect.DeepEqual(got, want) || len(x.inside.wakes()) > 0 {
		t.Errorf("%+v, resumed %q", got, x.inside.wakes())
	}
}
