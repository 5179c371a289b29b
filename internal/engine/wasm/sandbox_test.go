package wasm_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// token is the access token of the sandboxes under test.
const token = "wasmtest"

// testSandbox is a sandbox under test.
type testSandbox struct {
	e      engine.Engine
	id     string
	client *http.Client
	config []byte
}

// start starts a sandbox and removes it when the test ends.
func start(t testing.TB, e engine.Engine, image engine.Image, id string, change ...func(*engine.Spec)) *testSandbox {
	t.Helper()
	config, err := json.Marshal(guest.Config{SandboxID: id, TemplateID: "wasm", Hostname: id, AccessToken: token, ControlToken: token + "-control", DefaultUser: "user"})
	if err != nil {
		t.Fatal(err)
	}
	spec := engine.Spec{ID: id, Hostname: id, Image: image, Boot: engine.Boot{Config: config}}
	for _, f := range change {
		f(&spec)
	}
	if err := e.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return e.Dial(ctx, id, guestboot.Port)
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := e.Remove(context.Background(), id); err != nil {
			t.Errorf("remove: %v", err)
		}
	})
	return &testSandbox{e, id, &http.Client{Transport: transport}, config}
}

// result is the result of a command.
type result struct {
	out, err string
	code     int
	status   string
}

// process is a running command.
type process struct {
	sandbox *testSandbox
	pid     uint32
	stream  *connect.ServerStreamForClient[processpb.StartResponse]
	cancel  context.CancelFunc
}

// api returns a client of the guest's process service.
func (b *testSandbox) api() processpbconnect.ProcessClient {
	return processpbconnect.NewProcessClient(b.client, "http://guest", connect.WithProtoJSON())
}

// signed returns a request with the token and the user.
func signed[T any](message *T) *connect.Request[T] {
	req := connect.NewRequest(message)
	req.Header().Set("X-Access-Token", token)
	req.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("user:")))
	return req
}

// begin starts a command.
func (b *testSandbox) begin(ctx context.Context, request *processpb.StartRequest) (*process, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := b.api().Start(ctx, signed(request))
	if err != nil {
		cancel()
		return nil, err
	}
	for stream.Receive() {
		if s := stream.Msg().GetEvent().GetStart(); s != nil {
			return &process{b, s.GetPid(), stream, cancel}, nil
		}
	}
	cancel()
	return nil, stream.Err()
}

// wait collects the output of a command until it ends.
func (p *process) wait() (result, error) {
	defer p.cancel()
	defer p.stream.Close()
	var out, errOut bytes.Buffer
	for p.stream.Receive() {
		switch e := p.stream.Msg().GetEvent().GetEvent().(type) {
		case *processpb.ProcessEvent_Data:
			out.Write(e.Data.GetStdout())
			errOut.Write(e.Data.GetStderr())
		case *processpb.ProcessEvent_End:
			return result{out.String(), errOut.String(), int(e.End.GetExitCode()), e.End.GetStatus()}, nil
		}
	}
	return result{out.String(), errOut.String(), -1, ""}, errors.Join(p.stream.Err(), errors.New("the stream ended before the command"))
}

// command returns a request for a command without input, in /workspace.
func command(argv ...string) *processpb.StartRequest {
	stdin, dir := false, "/workspace"
	return &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: argv[0], Args: argv[1:], Cwd: &dir}, Stdin: &stdin}
}

// run runs a command until it ends.
func (b *testSandbox) run(t testing.TB, argv ...string) result {
	t.Helper()
	p, err := b.begin(t.Context(), command(argv...))
	if err != nil {
		t.Fatalf("start %v: %v", argv, err)
	}
	r, err := p.wait()
	if err != nil {
		t.Fatalf("wait for %v: %v", argv, err)
	}
	return r
}
