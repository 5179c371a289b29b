package crannog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
)

// scriptedServer sends the next of its answers to each request, and stores the requests.
type scriptedServer struct {
	requests []string // method, path with query, and body
	headers  []http.Header
	answers  []string
	status   int // of the next answers; 0 is OK
}

func (s *scriptedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	s.requests = append(s.requests, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), body)))
	s.headers = append(s.headers, r.Header.Clone())
	if s.status != 0 {
		w.WriteHeader(s.status)
	}
	if len(s.answers) > 0 {
		_, _ = io.WriteString(w, s.answers[0]) // a client may disconnect early
		s.answers = s.answers[1:]
	}
}

// newScripted returns a client of a scripted server.
func newScripted(t *testing.T, answers ...string) (*Client, *scriptedServer) {
	t.Helper()
	s := &scriptedServer{answers: answers}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := New(URL(server.URL), Key("k"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, s
}

func sandboxWithID(c *Client, id string) *Sandbox {
	return &Sandbox{client: c, info: api.Sandbox{ID: id}}
}

// errorOf drops the result of a call, so that a table can contain the call.
func errorOf[T any](_ T, err error) error { return err }

// Each call is one request. In its path, names with slashes and dots cannot be confused with the
// API's own segments.
func TestEachCallSendsOneRequest(t *testing.T) {
	ctx := t.Context()
	for want, call := range map[string]func(*Client) error{
		"GET /v1/images": func(c *Client) error { return errorOf(c.Images(ctx)) },
		"GET /v1/images/inspect?image=r.test%2Fa%3A1":       func(c *Client) error { return errorOf(c.InspectImage(ctx, "r.test/a:1")) },
		"DELETE /v1/images?image=a%26b":                     func(c *Client) error { return errorOf(c.RemoveImage(ctx, "a&b")) },
		"POST /v1/images/prune":                             func(c *Client) error { return errorOf(c.PruneImages(ctx)) },
		"GET /v1/builds":                                    func(c *Client) error { return errorOf(c.Builds(ctx)) },
		"DELETE /v1/builds/a%2Fb":                           func(c *Client) error { return c.CancelBuild(ctx, "a/b") },
		"GET /v1/templates":                                 func(c *Client) error { return errorOf(c.Templates(ctx)) },
		"GET /v1/templates/inspect?template=team%2Fweb%3A1": func(c *Client) error { return errorOf(c.InspectTemplate(ctx, "team/web:1")) },
		`POST /v1/templates {"template":"web","image":"i"}`: func(c *Client) error {
			return errorOf(c.CreateTemplate(ctx, api.CreateTemplate{Template: "web", Image: "i"}))
		},
		`POST /v1/templates/tags {"template":"web","tags":["a"]}`: func(c *Client) error {
			return errorOf(c.TagTemplate(ctx, api.TagTemplate{Template: "web", Tags: []string{"a"}}))
		},
		"DELETE /v1/templates?template=web":             func(c *Client) error { return c.RemoveTemplate(ctx, "web") },
		`POST /v1/sandboxes/s1/commit {"image":"mine"}`: func(c *Client) error { return errorOf(sandboxWithID(c, "s1").Commit(ctx, "mine")) },
		"GET /v1/secrets":                               func(c *Client) error { return errorOf(c.Secrets(ctx)) },
		"DELETE /v1/secrets/a%2F..%2Fb":                 func(c *Client) error { return c.RemoveSecret(ctx, "a/../b") },
		"POST /v1/secrets/rotate-key":                   func(c *Client) error { return errorOf(c.RotateSecretsKey(ctx)) },
		"GET /v1/approvals?":                            func(c *Client) error { return errorOf(c.Approvals(ctx, ApprovalOptions{})) },
		"GET /v1/approvals?sandbox=web&state=pending%2Cdenied": func(c *Client) error {
			return errorOf(c.Approvals(ctx, ApprovalOptions{States: []string{"pending", "denied"}, Sandbox: "web"}))
		},
		"GET /v1/approvals/q1": func(c *Client) error { return errorOf(c.Approval(ctx, "q1")) },
		`POST /v1/approvals/q1/approve {"reason":"ok","remember":true}`:         func(c *Client) error { return errorOf(c.Approve(ctx, "q1", "ok", true)) },
		`POST /v1/approvals/%20/deny {"reason":"no"}`:                           func(c *Client) error { return errorOf(c.Deny(ctx, "..", "no")) },
		"GET /v1/sandboxes/s1/processes":                                        func(c *Client) error { return errorOf(sandboxWithID(c, "s1").AllProcesses(ctx)) },
		"GET /v1/sandboxes/s1/policy":                                           func(c *Client) error { return errorOf(sandboxWithID(c, "s1").Policy(ctx)) },
		"GET /v1/sandboxes/s1/network/log?asked_within_seconds=1.5&denied=true": func(c *Client) error { return errorOf(sandboxWithID(c, "s1").AskedWithin(ctx, 1500*time.Millisecond)) },
		"GET /v1/sandboxes/s1/network/log?denied=true":                          func(c *Client) error { return errorOf(sandboxWithID(c, "s1").Asked(ctx)) },
		`POST /v1/sandboxes/s1/access/ask {"host":"a.test"}`: func(c *Client) error {
			return errorOf(sandboxWithID(c, "s1").AskAccess(ctx, api.AskAccess{Host: "a.test"}))
		},
		`POST /console/api/tokens {"name":"me","scope":"viewer","session_seconds":60}`: func(c *Client) error { return errorOf(c.ConsoleLink(ctx, "me", "viewer", time.Minute)) },
		"GET /console/api/sessions":          func(c *Client) error { return errorOf(c.ConsoleSessions(ctx)) },
		"DELETE /console/api/sessions/x%2Fy": func(c *Client) error { return c.EndConsoleSession(ctx, "x/y") },
		"GET /v1/engines":                    func(c *Client) error { return errorOf(c.Engines(ctx)) },
		"GET /v1/queue":                      func(c *Client) error { return errorOf(c.Queue(ctx)) },
		"GET /v1/keys":                       func(c *Client) error { return errorOf(c.Keys(ctx)) },
		"DELETE /v1/keys/k1":                 func(c *Client) error { return c.RevokeKey(ctx, "k1") },
	} {
		c, s := newScripted(t, "{}")
		if err := call(c); err != nil || !slices.Equal(s.requests, []string{want}) {
			t.Errorf("%s: got requests %q, error %v", want, s.requests, err)
			continue
		}
		if s.headers[0].Get("X-Api-Key") != "k" {
			t.Errorf("%s: sent without the API key", want)
		}
		// The server's error reaches the caller, with its code and hint.
		c, s = newScripted(t, `{"kind":"denied","code":"local_only","detail":"no","hint":"ask","status":403}`)
		s.status = http.StatusForbidden
		err := call(c)
		if e, ok := errors.AsType[*Error](err); !ok || !errors.Is(err, fs.ErrPermission) || Code(err) != "local_only" || e.Hint != "ask" || e.Message != "no" {
			t.Errorf("%s: the error for status 403 is %v", want, err)
		}
		// A truncated answer is an error too, except for DELETE, whose answer may be ignored.
		c, _ = newScripted(t, `{"name":`)
		if err := call(c); err == nil && !strings.HasPrefix(want, "DELETE") || err != nil && !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: the error for a truncated answer is %v", want, err)
		}
	}
}

func TestImageOperations(t *testing.T) {
	const progress = `{"stage":"pull","digest":"x","done_bytes":1,"total_bytes":2}` + "\n"
	ctx := t.Context()
	c, s := newScripted(t, progress+`{"finished":true,"images":[{"name":"a:1"}]}`)
	var seen []api.ImageEvent
	img, err := c.PullImage(ctx, api.PullImage{Image: "a"}, func(e api.ImageEvent) { seen = append(seen, e) })
	if err != nil || img.Name != "a:1" || len(seen) != 1 || seen[0].Total != 2 || s.requests[0] != `POST /v1/images/pull {"image":"a"}` {
		t.Errorf("PullImage: got %+v, events %+v, requests %q, error %v", img, seen, s.requests, err)
	}
	c, _ = newScripted(t, progress+`{"finished":true,"images":[{"name":"a:1"},{"name":"b:1"}]}`)
	if list, err := c.ImportImage(ctx, api.ImportImage{Path: "/f"}, nil); err != nil || len(list) != 2 {
		t.Errorf("ImportImage: got %+v, error %v", list, err)
	}
	c, _ = newScripted(t, progress+`{"finished":true,"problem":{"kind":"denied","code":"registry_denied","detail":"no","hint":"log in"}}`)
	if err := c.PushImage(ctx, api.PushImage{Image: "a"}, nil); !errors.Is(err, ErrDenied) || Code(err) != "registry_denied" {
		t.Errorf("a failed push: %v", err)
	}
	for name, answer := range map[string]string{"nothing": "", "only progress": progress, "half a line": progress + `{"fini`} {
		c, _ := newScripted(t, answer)
		if err := c.PushImage(ctx, api.PushImage{Image: "a"}, nil); !errors.Is(err, ErrUnavailable) {
			t.Errorf("PushImage with the answer %q: got error %v, want ErrUnavailable", name, err)
		}
	}
	c, s = newScripted(t, "tar")
	var out bytes.Buffer
	if err := c.ExportImage(ctx, "a:1", "docker", &out); err != nil || out.String() != "tar" || s.requests[0] != "GET /v1/images/archive?format=docker&image=a%3A1" {
		t.Errorf("ExportImage: got %q, requests %q, error %v", out.String(), s.requests, err)
	}
}

// A build context is sent in pieces whose offsets add up, then the build runs.
func TestBuildSendsContextInPieces(t *testing.T) {
	c, s := newScripted(t, `{"id":"b1"}`, "", "", `{"kind":"done","step":1}`+"\n"+`{"finished":true,"image":{"name":"t"}}`)
	var made api.Build
	var seen []api.BuildEvent
	img, err := c.Build(t.Context(), api.CreateBuild{Tag: "t", Dockerfile: "FROM x"}, func(w io.Writer) error {
		_, err := w.Write(make([]byte, buildPiece+10))
		return err
	}, func(b api.Build) { made = b }, func(e api.BuildEvent) { seen = append(seen, e) })
	if err != nil || img.Name != "t" || made.ID != "b1" || len(seen) != 1 || seen[0].Step != 1 || len(s.requests) != 4 {
		t.Fatalf("Build: got image %+v, created build %+v, events %+v, %d requests, error %v", img, made, seen, len(s.requests), err)
	}
	for at, want := range map[int]string{1: `PUT /v1/builds/b1/context {"offset":0,`, 2: fmt.Sprintf(`PUT /v1/builds/b1/context {"offset":%d,`, buildPiece), 3: "POST /v1/builds/b1/run"} {
		if !strings.HasPrefix(s.requests[at], want) {
			t.Errorf("request %d: got %.80s, want it to begin with %s", at, s.requests[at], want)
		}
	}
}

func TestBuildReportsErrors(t *testing.T) {
	ctx := t.Context()
	// An error that looks like the end of a file must not end a context as complete.
	for _, broken := range []error{errors.New("the source fails"), fmt.Errorf("a file: %w", io.ErrUnexpectedEOF), fmt.Errorf("a file: %w", io.EOF)} {
		c, s := newScripted(t, `{"id":"b1"}`)
		_, err := c.Build(ctx, api.CreateBuild{}, func(w io.Writer) error {
			_, err := io.WriteString(w, "a part")
			return errors.Join(err, broken)
		}, nil, nil)
		if !errors.Is(err, broken) || s.requests[len(s.requests)-1] != "DELETE /v1/builds/b1" {
			t.Errorf("Build with a broken context: error %v, requests %q", err, s.requests)
		}
	}
	for answer, want := range map[string]error{
		`{"finished":true,"problem":{"kind":"invalid","code":"build_step_failed","detail":"RUN failed"}}`: ErrInvalid,
		`{"kind":"done","step":1}`: ErrUnavailable, "": ErrUnavailable,
	} {
		c, _ := newScripted(t, `{"id":"b1"}`, answer)
		if _, err := c.Build(ctx, api.CreateBuild{}, nil, nil, nil); !errors.Is(err, want) {
			t.Errorf("Build with the answer %q: error %v", answer, err)
		}
	}
}

// WatchApprovals returns the ID of the last event that the caller has handled, also if the stream
// breaks off. The next call continues after it.
func TestWatchApprovals(t *testing.T) {
	const events = "id: 1\ndata: {\"type\":\"pending\",\"approval\":{\"id\":\"q1\"}}\n\nid: 2\ndata: {\"type\":\"denied\",\"approval\":{\"id\":\"q1\"}}\n\nid: 3\n"
	c, s := newScripted(t, events)
	var types []string
	last, err := c.WatchApprovals(t.Context(), "web", "0", func(e api.ApprovalEvent) error { types = append(types, e.Type); return nil })
	if last != "2" || !errors.Is(err, ErrUnavailable) || !slices.Equal(types, []string{"pending", "denied"}) {
		t.Errorf("WatchApprovals: got last event %q, error %v, types %q", last, err, types)
	}
	if s.requests[0] != "GET /v1/approvals/events?sandbox=web" || s.headers[0].Get("Last-Event-ID") != "0" || s.headers[0].Get("Accept") != "text/event-stream" {
		t.Errorf("WatchApprovals: got requests %q, headers %v", s.requests, s.headers)
	}
	c, _ = newScripted(t, events)
	stop := errors.New("stop")
	if last, err := c.WatchApprovals(t.Context(), "", "", func(e api.ApprovalEvent) error {
		if e.Type == "denied" {
			return stop
		}
		return nil
	}); last != "1" || !errors.Is(err, stop) {
		t.Errorf("WatchApprovals: got %q, error %v", last, err)
	}
	c, _ = newScripted(t, "id: 1\ndata: {\n")
	if last, err := c.WatchApprovals(t.Context(), "", "", func(api.ApprovalEvent) error { return nil }); last != "" || !errors.Is(err, ErrUnavailable) {
		t.Errorf("a broken event: got last event %q, error %v", last, err)
	}
}

// The server bounds one answer, so flows are requested until there are no more.
func TestFlowsRequestsAllPages(t *testing.T) {
	c, s := newScripted(t, `{"records":[{"seq":1},{"seq":4}]}`, `{"records":[{"seq":6}]}`, `{"records":[]}`)
	var seen []uint64
	note := func(r api.FlowRecord) error { seen = append(seen, r.Seq); return nil }
	if err := sandboxWithID(c, "s1").Flows(t.Context(), FlowOptions{Denied: true}, note); err != nil || !slices.Equal(seen, []uint64{1, 4, 6}) {
		t.Errorf("Flows: got %v, error %v", seen, err)
	}
	const path = "GET /v1/sandboxes/s1/network/log?"
	if want := []string{path + "denied=true", path + "after=4&denied=true", path + "after=6&denied=true"}; !slices.Equal(s.requests, want) {
		t.Errorf("Flows: got requests %q, want %q", s.requests, want)
	}
	c, s = newScripted(t, `{"records":[{"seq":9}]}`)
	if err := sandboxWithID(c, "s1").Flows(t.Context(), FlowOptions{Newest: true}, note); err != nil || !slices.Equal(s.requests, []string{path + "newest=true"}) {
		t.Errorf("Flows: got requests %q, error %v", s.requests, err)
	}
	stop := errors.New("stop")
	c, s = newScripted(t, `{"records":[{"seq":1}]}`)
	if err := sandboxWithID(c, "s1").Flows(t.Context(), FlowOptions{}, func(api.FlowRecord) error { return stop }); !errors.Is(err, stop) || len(s.requests) != 1 {
		t.Errorf("Flows: got requests %q, error %v", s.requests, err)
	}
	for answer, want := range map[string]error{"{\"seq\":1}\n{\"seq\":2}\n": nil, "{\"seq\":1}\n{\"se": ErrUnavailable} {
		c, s = newScripted(t, answer)
		seen = nil
		if err := sandboxWithID(c, "s1").Flows(t.Context(), FlowOptions{Follow: true}, note); !errors.Is(err, want) || seen[0] != 1 || s.requests[0] != path+"follow=true" {
			t.Errorf("Flows of %q: got %v, error %v", answer, seen, err)
		}
	}
}

// An error of another program, such as a proxy before the server, has the kind of its status.
func TestErrorsOfOtherPrograms(t *testing.T) {
	for status, want := range map[int]error{
		400: ErrInvalid, 405: ErrInvalid, 401: ErrUnauthenticated, 403: ErrDenied, 404: ErrNotFound, 409: ErrConflict, 413: ErrExhausted, 429: ErrExhausted, 507: ErrExhausted,
		501: ErrUnsupported, 502: ErrUnavailable, 503: ErrUnavailable, 504: ErrTimeout, 408: ErrTimeout, 500: ErrInternal, 302: ErrInternal,
	} {
		for body, text := range map[string]string{"<html>": http.StatusText(status), `{"message":"from inside","code":1}`: "from inside", `{"kind":"x"}`: http.StatusText(status), "the language is unknown\n": "the language is unknown"} {
			c, s := newScripted(t, body)
			s.status = status
			if _, err := c.Version(t.Context()); !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
				t.Errorf("Version with status %d and body %s: error %v, want %v", status, body, err, want)
			}
		}
	}
}

func TestCreateOptions(t *testing.T) {
	c, s := newScripted(t, `{"id":"s1","state":"running"}`)
	sb, err := c.Create(t.Context(), RequestID("r"), Image("debian:13"), Forever(), Ephemeral(), Workspace("/w"), Mount(api.Mount{Source: "/a"}), Mount(api.Mount{Source: "/b"}),
		Programs("/p"), Tools("all"), Engine("gvisor"), PrivatePorts(), Level("strict"), Net("dev"), Allow("a.test"), Allow("b.test:80"), Policy("x: 1"))
	want := `POST /v1/sandboxes {"image":"debian:13","forever":true,"ephemeral":true,"workspace":"/w","mounts":[{"source":"/a"},{"source":"/b"}],"programs":["/p"],"tools":["all"],` +
		`"engine":"gvisor","private_ports":true,"access":{"level":"strict","net":"dev","allow":["a.test","b.test:80"],"policy":"x: 1"},"request_id":"r"}`
	if err != nil || sb.ID() != "s1" || !slices.Equal(s.requests, []string{want}) {
		t.Errorf("Create: got requests %q, error %v", s.requests, err)
	}
	if err := sb.SetAccess(t.Context(), api.Access{Net: "none"}); !errors.Is(err, ErrUnavailable) || sb.ID() != "s1" {
		t.Errorf("SetAccess with an empty answer: error %v, and Info is now %+v", err, sb.Info())
	}
}
