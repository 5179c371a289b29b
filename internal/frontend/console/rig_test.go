package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/frontend/console"
	"github.com/crannog/crannog/internal/frontend/console/session"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server"
)

// templates resolves every name to the same template.
type templates struct{}

func (templates) Resolve(_ context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	return sandbox.Template{ID: "base0000000000000000", Name: ref.Name, Image: engine.ViewOf("/", "")}, nil
}

// machine holds the findings that doctor would return.
type machine struct {
	checks  int
	started chan struct{} // unless nil, closed when the checks begin, which last until left is closed
	left    <-chan struct{}
}

func (m *machine) Doctor(ctx context.Context) any {
	m.checks++
	if m.started != nil {
		close(m.started)
		<-m.left
	}
	if ctx.Err() != nil {
		return []string{"canceled"}
	}
	return []string{"kernel"}
}

func (*machine) Settings() []config.Value { return []config.Value{{Name: "listen", Value: "here"}} }
func (*machine) Templates() []console.Template {
	return []console.Template{{ID: "base0000000000000000", Name: "base"}}
}

// hostileHandler answers with HTML that a sandbox chose, like a careless handler.
type hostileHandler struct{ called chan session.Session }

const hostileHTML = `<script>fetch("/console/api/v1/keys")</script>`

func (h *hostileHandler) ServeSession(w http.ResponseWriter, r *http.Request, caller session.Session) {
	select {
	case h.called <- caller:
	default:
	}
	switch r.URL.Query().Get("path") {
	case "/hang":
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	case "/plain":
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
	case "/svg":
		w.Header().Set("Content-Type", "image/svg+xml")
	case "/html":
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Disposition", "inline")
	}
	_, _ = io.WriteString(w, hostileHTML)
}

// site is a real server, with a console whose front end is two small files.
type site struct {
	t           *testing.T
	d           *server.Server
	dir         string
	addr        string
	machine     *machine
	inside      *hostileHandler
	ownAPIPaths chan string // paths of requests that the console passed to the /v1 API
	stop        func()
}

var page = fstest.MapFS{
	"README.md":             {Data: []byte("readme")},
	"index.html":            {Data: []byte("<!doctype html><title>Crannog</title>")},
	"index.html.br":         {Data: []byte("index in brotli")},
	"assets/index-a1.js":    {Data: []byte("plain script")},
	"assets/index-a1.js.br": {Data: []byte("script in brotli")},
	"assets/index-a1.js.gz": {Data: []byte("script in gzip")},
	"other/secret.txt":      {Data: []byte("not to be served")},
}

func openSite(t *testing.T, dir string, files fs.FS) *site {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	eng, err := fake.New(fake.Options{Dir: filepath.Join(dir, "run"), Guest: func(spec engine.Spec) (map[int]http.Handler, func(), error) {
		nothing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, spec.ID) })
		return map[int]http.Handler{guestboot.Port: fake.Control(spec, nothing)}, nil, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(eng.Close)
	s := &site{t: t, dir: dir, machine: &machine{}, inside: &hostileHandler{make(chan session.Session, 1)}, ownAPIPaths: make(chan string, 1)}
	s.d, err = server.Open(t.Context(), server.Options{
		StateDir: dir, Log: log, Engines: fake.Registry(eng), Templates: templates{}, Server: true, Version: "test", Domain: "sbx.example.com",
		Settings: sandbox.Settings{AnyBoundary: true},
		Frontends: []server.FrontendMount{{Path: console.Path, Home: true, Open: func(in server.Backend) server.Frontend {
			c, err := console.New(console.Options{
				Sessions: in.Server.Sessions,
				Act: func(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) {
					select {
					case s.ownAPIPaths <- r.URL.String():
					default:
					}
					in.Act(w, r, caller)
				},
				Authenticate: in.Authenticate, Refused: in.Server.Service.Refused,
				Live: s.inside, Inside: s.inside, Machine: s.machine, Policies: in.Server.Service, History: in.Server.Audit,
				About: console.About{Version: "test", Domain: "sbx.example.com", Engine: "fake", Boundary: "none", Started: time.Now()},
				Base:  "http://127.0.0.1:1", Hosts: []string{"sbx.example.com", "console.example.net"}, Files: files, Log: log,
			})
			if err != nil {
				t.Error(err)
			}
			return c
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.d.Serve(ctx, l) }()
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := s.d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(s.stop)
	// The server opens the local socket before the port answers.
	if g := s.send(siteRequest{path: "/health"}); g.status != http.StatusOK {
		t.Fatalf("health: %d %s", g.status, g.body)
	}
	return s
}

func newSite(t *testing.T) *site { return openSite(t, filepath.Join(t.TempDir(), "s"), page) }

// siteRequest is a request to the server. No method means GET.
type siteRequest struct {
	method, path, body, cookie, host string
	header                           http.Header
	socket                           bool // sends over the local socket, as the machine's user
}

type siteResponse struct {
	status int
	header http.Header
	body   string
}

func (g siteResponse) code() string {
	var p api.Problem
	_ = json.Unmarshal([]byte(g.body), &p)
	return p.Code
}

func (s *site) send(q siteRequest) siteResponse {
	s.t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	if q.socket {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", server.SocketPath(s.dir))
		}
	}
	if q.method == "" {
		q.method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(s.t.Context(), q.method, "http://"+s.addr+q.path, strings.NewReader(q.body))
	if err != nil {
		s.t.Fatal(err)
	}
	if q.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if q.cookie != "" {
		req.Header.Set("Cookie", console.CookieName+"="+q.cookie)
	}
	maps.Copy(req.Header, q.header)
	if q.host != "" {
		req.Host = q.host
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(res.Body); err != nil {
		s.t.Fatal(err)
	}
	return siteResponse{res.StatusCode, res.Header, body.String()}
}

// token creates a link over the local socket, as the command line does.
func (s *site) token(scope session.Scope) string {
	s.t.Helper()
	g := s.send(siteRequest{method: "POST", path: "/console/api/tokens", body: `{"scope":"` + scope.String() + `","name":"Ann"}`, socket: true})
	var link api.ConsoleLink
	if err := json.Unmarshal([]byte(g.body), &link); err != nil || g.status != http.StatusCreated {
		s.t.Fatalf("a link: %d %s", g.status, g.body)
	}
	if link.URL != "http://127.0.0.1:1/console/#token="+link.Token || link.Scope != scope.String() {
		s.t.Errorf("the sign-in link: got %+v", link)
	}
	return link.Token
}

// sign signs in and returns the cookie.
func (s *site) sign(scope session.Scope) string {
	s.t.Helper()
	g := s.send(siteRequest{method: "POST", path: "/console/api/session", body: `{"token":"` + s.token(scope) + `"}`})
	if g.status != http.StatusOK {
		s.t.Fatalf("sign in: %d %s", g.status, g.body)
	}
	c, err := http.ParseSetCookie(g.header.Get("Set-Cookie"))
	if err != nil {
		s.t.Fatal(err)
	}
	return c.Value
}

// sandbox creates a sandbox as the machine's user.
func (s *site) sandbox() string {
	s.t.Helper()
	sb, err := s.d.Service.Create(s.t.Context(), sandbox.Principal{Local: true}, sandbox.CreateRequest{Template: "base", PrivatePorts: true, Timeout: time.Hour})
	if err != nil {
		s.t.Fatal(err)
	}
	return sb.ID
}

// auditEntries returns the audit entries as "kind actor do outcome".
func (s *site) auditEntries(kinds ...audit.Kind) (list []string) {
	s.t.Helper()
	err := s.d.Audit.Read(s.t.Context(), audit.Filter{Kinds: kinds}, false, func(e audit.Entry) error {
		var f struct{ Do, Outcome, Scope, Reason string }
		if err := json.Unmarshal(e.Data, &f); err != nil {
			return err
		}
		list = append(list, strings.Join(strings.Fields(fmt.Sprint(e.Kind, " ", e.Actor, " ", f.Do, " ", f.Outcome, " ", f.Scope, " ", f.Reason)), " "))
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

func (s *site) wantEntry(list []string, want string) {
	s.t.Helper()
	if slices.Contains(list, want) {
		return
	}
	s.t.Errorf("the audit log has no entry %q:\n%s", want, strings.Join(list, "\n"))
}
