package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/mcpserver"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server"
	"github.com/crannog/crannog/internal/server/standard"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestMain(m *testing.M) {
	crannog.Main()
	os.Exit(m.Run())
}

// versions are the protocol versions of clients, with and without sessions.
var versions = []string{"2025-06-18", "2025-11-25", "2026-07-28"}

// testServer is a complete server: engine, API and the endpoint of agents.
type testServer struct {
	t     *testing.T
	d     *server.Server
	addr  string
	local *crannog.Client // the machine's user
}

func newTestServer(t *testing.T, settings sandbox.Settings) *testServer {
	t.Helper()
	hosttest.Need(t, hosttest.Root, hosttest.Bash, hosttest.Python)
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	state, err := os.MkdirTemp("", "cm") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(state) })
	approver := mcpserver.Person
	if settings.AgentsAnswer {
		approver = mcpserver.Any
	}
	d, err := standard.Open(t.Context(), standard.Options{
		State: state, Log: log, Server: true, Version: "test", Settings: settings, Domain: "localhost:7070",
		Frontends: []server.FrontendMount{{Path: "/mcp", Open: func(in server.Backend) server.Frontend {
			h, err := mcpserver.NewHTTP(mcpserver.HTTPOptions{
				Authenticate: in.Server.AgentKey,
				Dial: func(ctx context.Context, key string) (net.Conn, error) {
					return in.DialAs(ctx, sandbox.Principal{KeyID: key})
				},
				Refused: in.Server.Service.Refused, Log: log, Version: "test", Approver: approver,
			})
			if err != nil {
				t.Error(err)
			}
			return h
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, l) }()
	p := &testServer{t: t, d: d, addr: l.Addr().String()}
	if p.local, err = crannog.New(crannog.Socket(filepath.Join(state, "crannog.sock"))); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the server answers", func() bool { _, err := p.local.Version(t.Context()); return err == nil })
	t.Cleanup(func() {
		p.killAll()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// killAll ends every sandbox.
func (p *testServer) killAll() {
	list, err := p.local.List(context.Background(), crannog.ListOptions{States: []string{"all"}})
	if err != nil {
		p.t.Error(err)
	}
	for _, info := range list {
		if info.State == "stopped" {
			continue
		}
		if sb, err := p.local.Get(context.Background(), info.ID); err == nil {
			_ = sb.Kill(context.Background()) // it may have ended by itself
		}
	}
}

func (p *testServer) key(name string) (secret, id string) {
	p.t.Helper()
	secret, k, err := p.d.Keys.Create(p.t.Context(), name)
	if err != nil {
		p.t.Fatal(err)
	}
	return secret, k.ID
}

// bearer sends a key with every request.
type bearer struct{ key string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return http.DefaultTransport.RoundTrip(r)
}

// agent is a client of one session.
type agent struct {
	t *testing.T
	*mcp.ClientSession
}

// connectHTTP connects over HTTP.
func (p *testServer) connectHTTP(key, path, version string, o *mcp.ClientOptions) *agent {
	p.t.Helper()
	transport := &mcp.StreamableClientTransport{
		Endpoint: "http://" + p.addr + path, HTTPClient: &http.Client{Transport: bearer{key}}, DisableStandaloneSSE: true,
	}
	return connect(p.t, transport, version, o)
}

func connect(t *testing.T, transport mcp.Transport, version string, o *mcp.ClientOptions) *agent {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	s, err := c.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // it may be closed already
	if got := s.InitializeResult().ProtocolVersion; got != version {
		t.Fatalf("the server speaks %s", got)
	}
	return &agent{t, s}
}

// tenant creates a Tenant in this process. inMemory connects to it.
func (p *testServer) tenant(o mcpserver.Options) *mcpserver.Tenant {
	p.t.Helper()
	if o.Client == nil {
		o.Client = p.local
	}
	o.Log = slog.New(slog.NewTextHandler(p.t.Output(), nil))
	if o.Create == nil {
		o.Create = []crannog.CreateOption{crannog.Net("policy"), crannog.Timeout(time.Hour)}
	}
	d, err := mcpserver.NewTenant(o)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

func inMemory(t *testing.T, d *mcpserver.Tenant, v mcpserver.View, version string, o *mcp.ClientOptions) *agent {
	t.Helper()
	srv, err := d.Server(v)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := mcp.NewInMemoryTransports()
	ss, err := srv.Connect(t.Context(), theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ss.Close() })
	return connect(t, ours, version, o)
}

// args are the arguments of a tool.
type args = map[string]any

// answer is the result of a tool.
type answer struct {
	text  string
	bad   bool
	code  string // of an error
	out   map[string]any
	kinds []string // of the content
}

func (a *agent) try(name string, in args, set ...func(*mcp.CallToolParams)) (answer, error) {
	a.t.Helper()
	p := &mcp.CallToolParams{Name: name, Arguments: in}
	for _, s := range set {
		s(p)
	}
	r, err := a.CallTool(a.t.Context(), p)
	if err != nil {
		return answer{}, err
	}
	got := answer{bad: r.IsError}
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			got.text += text.Text
		}
		got.kinds = append(got.kinds, strings.TrimPrefix(fmt.Sprintf("%T", c), "*mcp."))
	}
	if e, ok := r.Meta["crannog/error"].(map[string]any); ok {
		got.code, _ = e["code"].(string)
	}
	if r.StructuredContent != nil {
		b, err := json.Marshal(r.StructuredContent)
		if err == nil {
			err = json.Unmarshal(b, &got.out)
		}
		if err != nil {
			a.t.Fatal(err)
		}
	}
	return got, nil
}

// do calls a tool that must succeed.
func (a *agent) do(name string, in args, set ...func(*mcp.CallToolParams)) answer {
	a.t.Helper()
	got, err := a.try(name, in, set...)
	if err != nil || got.bad {
		a.t.Fatalf("%s %v: %v %s", name, in, err, got.text)
	}
	return got
}

// fail calls a tool that must fail with a code.
func (a *agent) fail(code, name string, in args) answer {
	a.t.Helper()
	got, err := a.try(name, in)
	if err != nil || !got.bad || got.code != code {
		a.t.Errorf("%s %v: want the error %s, got %v %q %s", name, in, code, err, got.code, got.text)
	}
	return got
}

// optionsFor returns the options of a key's Tenant on another server.
func optionsFor(c *crannog.Client) mcpserver.Options {
	return mcpserver.Options{Client: c, Labelled: true, All: true}
}

func view() mcpserver.View { return mcpserver.View{} }
