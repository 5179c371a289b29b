package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

const templateID = "base0000000000000000"

type templates struct{}

func (templates) Resolve(_ context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	if ref.Name != "base" && ref.Name != templateID {
		return sandbox.Template{}, sandbox.TemplateUnknown(ref)
	}
	return sandbox.Template{ID: templateID, Name: ref.Name, Image: engine.ViewOf("/", "")}, nil
}

var local = sandbox.Principal{Local: true}

// inside answers with the port and the sandbox that a request reached.
func inside(spec engine.Spec) (map[int]http.Handler, func(), error) {
	say := func(port int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hang" {
				http.NewResponseController(w).Flush()
				<-r.Context().Done()
				return
			}
			fmt.Fprintf(w, "%s:%d%s", spec.ID, port, r.URL.Path)
		})
	}
	return map[int]http.Handler{
		guestboot.Port: fake.Control(spec, say(guestboot.Port)), 8080: say(8080),
	}, nil, nil
}

// open opens a state directory and closes it when the test ends.
func open(t *testing.T, dir string, serves bool, frontends ...server.FrontendMount) (*server.Server, error) {
	t.Helper()
	eng, err := fake.New(fake.Options{Dir: filepath.Join(dir, "run"), Guest: inside})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(eng.Close)
	d, err := server.Open(t.Context(), server.Options{
		StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Engines: fake.Registry(eng), Templates: templates{},
		Server: serves, Version: "test", Frontends: frontends,
		Settings: sandbox.Settings{AnyBoundary: true}, // the fake has none
	})
	if err == nil {
		t.Cleanup(func() { shut(t, d) })
	}
	return d, err
}

func mustOpen(t *testing.T, dir string, serves bool, frontends ...server.FrontendMount) *server.Server {
	t.Helper()
	d, err := open(t, dir, serves, frontends...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func shut(t *testing.T, d *server.Server) {
	t.Helper()
	if err := d.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestOneServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first := mustOpen(t, dir, true)
	_, err := open(t, dir, true)
	if fault.KindOf(err) != fault.Conflict || fault.CodeOf(err) != "server_running" || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second server: %v", err)
	}
	shut(t, mustOpen(t, dir, false)) // other processes may use the state
	shut(t, first)
	shut(t, mustOpen(t, dir, true))
}

func TestCloseEndsOnlyTheEphemeral(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	d := mustOpen(t, dir, false)
	kept, err := d.Service.Create(t.Context(), local, sandbox.CreateRequest{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	brief, err := d.Service.Create(t.Context(), local, sandbox.CreateRequest{Template: "base", Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	shut(t, d)
	d = mustOpen(t, dir, false)
	if len(d.Report.Adopted) != 1 || d.Report.Adopted[0] != kept.ID {
		t.Errorf("report %+v", d.Report)
	}
	if _, err := d.Service.Get(t.Context(), local, brief.ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("the ephemeral one: %v", err)
	}
}

// running is a server on a loopback port.
type running struct {
	t      *testing.T
	d      *server.Server
	addr   string
	dir    string
	stop   context.CancelFunc
	served chan error
}

func serve(t *testing.T, frontends ...server.FrontendMount) *running {
	t.Helper()
	s := &running{t: t, dir: filepath.Join(t.TempDir(), "s"), served: make(chan error, 1)}
	s.d = mustOpen(t, s.dir, true, frontends...)
	// The socket of a killed server.
	stale, err := net.Listen("unix", server.SocketPath(s.dir))
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() { s.served <- s.d.Serve(ctx, l) }()
	t.Cleanup(stop)
	// The port answers only after the stale socket has been replaced.
	if status, body := s.get(false, "/health"); status != http.StatusOK {
		t.Fatalf("health: %d %s", status, body)
	}
	return s
}

// get sends a request over TCP, or over the local socket, and returns status and body.
func (s *running) get(overSocket bool, path string, headers ...string) (int, string) {
	s.t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	if overSocket {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", server.SocketPath(s.dir))
		}
	}
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", "http://"+s.addr+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if req.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestRoutes(t *testing.T) {
	s := serve(t)
	secret, k, err := s.d.Keys.Create(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	box, err := s.d.Service.Create(t.Context(), sandbox.Principal{KeyID: k.ID}, sandbox.CreateRequest{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	route := []string{"E2b-Sandbox-Id", box.ID, "E2b-Sandbox-Port"}
	for name, tc := range map[string]struct {
		socket  bool
		path    string
		headers []string
		status  int
		want    string
	}{
		"E2B health":              {false, "/health", nil, 200, "ok"},
		"sandbox's health":        {false, "/health", append(route, "8080"), 200, box.ID + ":8080/health"},
		"by host name":            {false, "/v1/x", []string{"Host", "8080-" + box.ID + ".localhost"}, 200, box.ID + ":8080/v1/x"},
		"headers before own API":  {false, "/v1/sandboxes", append(route, "8080"), 200, box.ID + ":8080/v1/sandboxes"},
		"guest":                   {false, "/envs", append(route, "49983"), 200, box.ID + ":49983/envs"},
		"control is ours":         {false, "/_crannog/ready", append(route, "49983"), 404, ""},
		"unsigned file":           {false, "/files?path=x", nil, 401, "signature"},
		"own API without key":     {false, "/v1/sandboxes", nil, 401, ""},
		"own API, wrong key":      {false, "/v1/sandboxes", []string{"X-API-Key", "e2b_" + strings.Repeat("0", 40)}, 401, ""},
		"own API with key":        {false, "/v1/sandboxes", []string{"X-API-Key", secret}, 200, box.ID},
		"own API with bearer":     {false, "/v1/sandboxes", []string{"Authorization", "bearer " + secret}, 200, box.ID},
		"own API by socket":       {true, "/v1/sandboxes", nil, 200, box.ID},
		"keys by socket":          {true, "/v1/keys", nil, 200, k.ID},
		"keys with key":           {false, "/v1/keys", []string{"X-API-Key", secret}, 403, ""},
		"E2B without key":         {false, "/v2/sandboxes", nil, 401, `"code":401`},
		"E2B with key":            {false, "/v2/sandboxes", []string{"X-API-Key", secret}, 200, box.ID},
		"E2B by socket needs one": {true, "/v2/sandboxes", nil, 401, ""},
		"prefix is not own API":   {false, "/v1x", []string{"X-API-Key", secret}, 404, `"code":404`},
	} {
		status, body := s.get(tc.socket, tc.path, tc.headers...)
		if status != tc.status || !strings.Contains(body, tc.want) {
			t.Errorf("%s: %d %s; want %d and %q", name, status, body, tc.status, tc.want)
		}
		if strings.Contains(body, box.AccessToken) && !strings.HasPrefix(name, "own API") {
			t.Errorf("%s: the answer holds the access token", name)
		}
	}
}

func TestSocketIsPrivate(t *testing.T) {
	s := serve(t)
	s.get(true, "/v1/version")
	info, err := os.Stat(server.SocketPath(s.dir))
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != os.ModeSocket {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(s.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// A shutdown closes streams, does not wait for long requests, leaves no socket and no goroutine,
// and keeps sandboxes running.
func TestShutdown(t *testing.T) {
	before := runtime.NumGoroutine()
	// Longer than all other steps on a busy machine, so that a wait for the request is noticed.
	drain := hosttest.Patience(hosttest.Hang)
	defer server.DrainFor(drain)()
	s := serve(t)
	box, err := s.d.Service.Create(t.Context(), local, sandbox.CreateRequest{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.addr+"/hang", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"E2b-Sandbox-Id": {box.ID}, "E2b-Sandbox-Port": {"8080"}}
	transport := &http.Transport{}
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	start := time.Now()
	s.stop()
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("a cut stream ended as if it were complete")
	}
	if err := <-s.served; err != nil {
		t.Errorf("serve: %v", err)
	}
	if took := time.Since(start); took >= drain {
		t.Errorf("the end took %v: it waited for the stream", took)
	}
	if _, err := os.Lstat(server.SocketPath(s.dir)); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	transport.CloseIdleConnections()
	shut(t, s.d)
	d := mustOpen(t, s.dir, false)
	if len(d.Report.Adopted) != 1 {
		t.Errorf("report %+v", d.Report)
	}
	if err := d.Service.Remove(t.Context(), local, box.ID); err != nil {
		t.Error(err)
	}
	shut(t, d)
	hosttest.NoMore(t, "goroutines", before, runtime.NumGoroutine)
}

func TestLongStatePath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	d := mustOpen(t, dir, true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Serve(t.Context(), l); fault.CodeOf(err) != "state_path_too_long" {
		t.Errorf("got %v", err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the port is still open")
	}
}

// A program in this process gets the same API.
func TestLocal(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "state"), false)
	face := d.Local()
	transport := &http.Transport{DialContext: face.Dial}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://localhost/v1/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var v struct{ Version string }
	if err := json.NewDecoder(res.Body).Decode(&v); err != nil || v.Version != "test" {
		t.Errorf("%+v, %v", v, err)
	}
	transport.CloseIdleConnections()
	if err := face.Close(); err != nil {
		t.Error(err)
	}
}

// A client that learns of a server before it serves can connect. A server that never serves leaves
// no socket.
func TestListenBeforeServe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	d := mustOpen(t, dir, true)
	if err := d.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", server.SocketPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(server.SocketPath(dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}
