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
	"syscall"
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

// templates has only the template "base".
type templates struct{}

func (templates) Resolve(_ context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	if ref.Name != "base" && ref.Name != templateID {
		return sandbox.Template{}, sandbox.TemplateUnknown(ref)
	}
	return sandbox.Template{ID: templateID, Name: ref.Name, Image: engine.ViewOf("/", "")}, nil
}

var local = sandbox.Principal{Local: true}

// guestHandlers returns a guest that answers with the sandbox and the port of each request.
func guestHandlers(spec engine.Spec) (map[int]http.Handler, func(), error) {
	echo := func(port int) http.Handler {
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
		guestboot.Port: fake.Control(spec, echo(guestboot.Port)), 8080: echo(8080),
	}, nil, nil
}

// open opens a state directory and closes it when the test ends.
func open(t *testing.T, dir string, serves bool, frontends ...server.FrontendMount) (*server.Server, error) {
	t.Helper()
	eng, err := fake.New(fake.Options{Dir: filepath.Join(dir, "run"), Guest: guestHandlers})
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
		t.Cleanup(func() { closeServer(t, d) })
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

func closeServer(t *testing.T, d *server.Server) {
	t.Helper()
	if err := d.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestOnlyOneServerPerStateDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first := mustOpen(t, dir, true)
	_, err := open(t, dir, true)
	if fault.KindOf(err) != fault.Conflict || fault.CodeOf(err) != "server_running" || !strings.Contains(err.Error(), dir) {
		t.Errorf("second server: got %v, want server_running", err)
	}
	closeServer(t, mustOpen(t, dir, false)) // other processes may use the state
	closeServer(t, first)
	closeServer(t, mustOpen(t, dir, true))
}

// A process that a killed server was starting keeps the lock until it executes its program.
func TestServerWaitsForLockOfKilledOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	closeServer(t, mustOpen(t, dir, true))
	name := filepath.Join(dir, "serve.lock")
	held, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		d, err := open(t, dir, true)
		if err == nil {
			err = d.Close(context.Background())
		}
		opened <- err
	}()
	hosttest.Eventually(t, "the server tries to take the lock", func() bool {
		n := 0
		for _, to := range hosttest.Descriptors(t, os.Getpid()) {
			if to == name {
				n++
			}
		}
		return n == 2
	})
	held.Close()
	if err := <-opened; err != nil {
		t.Errorf("a server after the lock was released: %v", err)
	}
}

func TestCloseRemovesOnlyEphemeralSandboxes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	d := mustOpen(t, dir, false)
	persistent, err := d.Service.Create(t.Context(), local, sandbox.CreateRequest{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	ephemeral, err := d.Service.Create(t.Context(), local, sandbox.CreateRequest{Template: "base", Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	closeServer(t, d)
	d = mustOpen(t, dir, false)
	if len(d.Report.Adopted) != 1 || d.Report.Adopted[0] != persistent.ID {
		t.Errorf("report: got %+v, want only the persistent sandbox adopted", d.Report)
	}
	if _, err := d.Service.Get(t.Context(), local, ephemeral.ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("ephemeral sandbox: got %v, want NotFound", err)
	}
}

// testServer is a server on a loopback port.
type testServer struct {
	t      *testing.T
	d      *server.Server
	addr   string
	dir    string
	stop   context.CancelFunc
	served chan error
}

// serve starts a server on a new state directory, with a stale socket of an earlier server.
func serve(t *testing.T, frontends ...server.FrontendMount) *testServer {
	t.Helper()
	s := &testServer{t: t, dir: filepath.Join(t.TempDir(), "s"), served: make(chan error, 1)}
	s.d = mustOpen(t, s.dir, true, frontends...)
	// The socket that a killed server would leave.
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
func (s *testServer) get(overSocket bool, path string, headers ...string) (int, string) {
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

func TestRequestsReachTheirAPI(t *testing.T) {
	s := serve(t)
	secret, k, err := s.d.Keys.Create(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	sb, err := s.d.Service.Create(t.Context(), sandbox.Principal{KeyID: k.ID}, sandbox.CreateRequest{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	route := []string{"E2b-Sandbox-Id", sb.ID, "E2b-Sandbox-Port"}
	for name, tc := range map[string]struct {
		socket  bool
		path    string
		headers []string
		status  int
		want    string
	}{
		"E2B health":              {false, "/health", nil, 200, "ok"},
		"sandbox's health":        {false, "/health", append(route, "8080"), 200, sb.ID + ":8080/health"},
		"by host name":            {false, "/v1/x", []string{"Host", "8080-" + sb.ID + ".localhost"}, 200, sb.ID + ":8080/v1/x"},
		"headers before own API":  {false, "/v1/sandboxes", append(route, "8080"), 200, sb.ID + ":8080/v1/sandboxes"},
		"guest":                   {false, "/envs", append(route, "49983"), 200, sb.ID + ":49983/envs"},
		"guest's control path":    {false, "/_crannog/ready", append(route, "49983"), 404, ""},
		"unsigned file":           {false, "/files?path=x", nil, 401, "signature"},
		"own API without key":     {false, "/v1/sandboxes", nil, 401, ""},
		"own API, wrong key":      {false, "/v1/sandboxes", []string{"X-API-Key", "e2b_" + strings.Repeat("0", 40)}, 401, ""},
		"own API with key":        {false, "/v1/sandboxes", []string{"X-API-Key", secret}, 200, sb.ID},
		"own API with bearer":     {false, "/v1/sandboxes", []string{"Authorization", "bearer " + secret}, 200, sb.ID},
		"own API by socket":       {true, "/v1/sandboxes", nil, 200, sb.ID},
		"keys by socket":          {true, "/v1/keys", nil, 200, k.ID},
		"keys with key":           {false, "/v1/keys", []string{"X-API-Key", secret}, 403, ""},
		"E2B without key":         {false, "/v2/sandboxes", nil, 401, `"code":401`},
		"E2B with key":            {false, "/v2/sandboxes", []string{"X-API-Key", secret}, 200, sb.ID},
		"E2B by socket needs key": {true, "/v2/sandboxes", nil, 401, ""},
		"prefix is not own API":   {false, "/v1x", []string{"X-API-Key", secret}, 404, `"code":404`},
	} {
		status, body := s.get(tc.socket, tc.path, tc.headers...)
		if status != tc.status || !strings.Contains(body, tc.want) {
			t.Errorf("%s: got %d %s, want %d and %q", name, status, body, tc.status, tc.want)
		}
		if strings.Contains(body, sb.AccessToken) && !strings.HasPrefix(name, "own API") {
			t.Errorf("%s: the answer contains the access token", name)
		}
	}
}

func TestSocketIsPrivate(t *testing.T) {
	s := serve(t)
	s.get(true, "/v1/version")
	info, err := os.Stat(server.SocketPath(s.dir))
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != os.ModeSocket {
		t.Errorf("socket: got mode %v (%v), want 0600", info.Mode(), err)
	}
	if info, err := os.Stat(s.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("state directory: got mode %v (%v), want 0700", info.Mode(), err)
	}
}

// A shutdown closes streams, does not wait for them, and leaves neither the socket nor a goroutine.
// Sandboxes keep running.
func TestShutdownClosesStreamsAndKeepsSandboxes(t *testing.T) {
	before := runtime.NumGoroutine()
	// The timeout is longer than all other steps on a busy machine, so that a wait is noticed.
	timeout := hosttest.Patience(hosttest.Hang)
	defer server.SetDrainTimeout(timeout)()
	s := serve(t)
	sb, err := s.d.Service.Create(t.Context(), local, sandbox.CreateRequest{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.addr+"/hang", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"E2b-Sandbox-Id": {sb.ID}, "E2b-Sandbox-Port": {"8080"}}
	transport := &http.Transport{}
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	start := time.Now()
	s.stop()
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the interrupted stream ended without an error")
	}
	if err := <-s.served; err != nil {
		t.Errorf("serve: %v", err)
	}
	if took := time.Since(start); took >= timeout {
		t.Errorf("the shutdown took %v, so it waited for the stream", took)
	}
	if _, err := os.Lstat(server.SocketPath(s.dir)); !os.IsNotExist(err) {
		t.Errorf("socket after the shutdown: got %v, want none", err)
	}
	transport.CloseIdleConnections()
	closeServer(t, s.d)
	d := mustOpen(t, s.dir, false)
	if len(d.Report.Adopted) != 1 {
		t.Errorf("report: got %+v, want one sandbox adopted", d.Report)
	}
	if err := d.Service.Remove(t.Context(), local, sb.ID); err != nil {
		t.Error(err)
	}
	closeServer(t, d)
	hosttest.EventuallyAtMost(t, "goroutines", before, runtime.NumGoroutine)
}

func TestServeRejectsLongStatePath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	d := mustOpen(t, dir, true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Serve(t.Context(), l); fault.CodeOf(err) != "state_path_too_long" {
		t.Errorf("Serve: got %v, want state_path_too_long", err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the port is still open")
	}
}

// Local serves the same API to a program in this process.
func TestLocalServesAPI(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "state"), false)
	connection := d.Local()
	transport := &http.Transport{DialContext: connection.Dial}
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
		t.Errorf("version: got %+v (%v), want test", v, err)
	}
	transport.CloseIdleConnections()
	if err := connection.Close(); err != nil {
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
		t.Errorf("socket after Close: got %v, want none", err)
	}
}
