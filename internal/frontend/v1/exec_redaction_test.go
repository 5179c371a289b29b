package v1

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/fault"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
)

const sealedValue = "tk-Zr8qP2mW/Lx4vB9+cd"

// fakeSandbox is a running sandbox whose guest is a server of this process.
type fakeSandbox struct {
	Finder
	socket    string
	redactor  *sandbox.Redactor
	failure   error
	gone      chan struct{}
	state     sandbox.State // "" is running
	dialed    int
	dialError func(dial int) error // unless nil, called before each dial
}

func (b *fakeSandbox) Get(context.Context, sandbox.Principal, string) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{ID: "i1", State: cmp.Or(b.state, sandbox.Running)}, nil
}

func (b *fakeSandbox) Redactor(context.Context, string) (*sandbox.Redactor, error) {
	return b.redactor, b.failure
}

func (b *fakeSandbox) Gone(string) <-chan struct{} { return b.gone }

func (b *fakeSandbox) Dial(ctx context.Context, _ string, port int) (net.Conn, error) {
	if port != guestboot.Port {
		return nil, errors.New("not the guest's port")
	}
	b.dialed++
	if b.dialError != nil {
		if err := b.dialError(b.dialed); err != nil {
			return nil, err
		}
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", b.socket)
}

// secretGuest is a guest whose commands print a value in two pieces, or fail to start with an error
// that contains it.
type secretGuest struct {
	processpbconnect.UnimplementedProcessHandler
}

func (secretGuest) Start(_ context.Context, req *connect.Request[pb.StartRequest], s *connect.ServerStream[pb.StartResponse]) error {
	if req.Msg.GetProcess().GetCmd() == "absent" {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("no "+sealedValue))
	}
	send := func(e *pb.ProcessEvent) error { return s.Send(&pb.StartResponse{Event: e}) }
	out := func(text string) error {
		return send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: &pb.ProcessEvent_DataEvent{
			Output: &pb.ProcessEvent_DataEvent_Stdout{Stdout: []byte(text)},
		}}})
	}
	return errors.Join(
		send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: 7}}}),
		out("a "+sealedValue[:9]), out(sealedValue[9:]+"\n"),
		send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: &pb.ProcessEvent_DataEvent{
			Output: &pb.ProcessEvent_DataEvent_Stderr{Stderr: []byte(sealedValue)},
		}}}),
		send(&pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: &pb.ProcessEvent_EndEvent{ExitCode: 3, Exited: true}}}),
	)
}

// withGuest is an API over one sandbox, whose guest serves processes.
func withGuest(t *testing.T, guest processpbconnect.ProcessHandler) (*fakeSandbox, *rig) {
	t.Helper()
	fake := &fakeSandbox{socket: filepath.Join(t.TempDir(), "guest")}
	l, err := net.Listen("unix", fake.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(processpbconnect.NewProcessHandler(guest))
	serving := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	serving.Start()
	t.Cleanup(serving.Close)
	r := &rig{t: t}
	r.with(Deps{
		Finder: fake, NetworkLog: &fakeFlows{}, Guests: fake, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "v9",
		Auth: func(*http.Request) (sandbox.Principal, error) { return sandbox.Principal{KeyID: "k1"}, nil },
	})
	return fake, r
}

// The output of a command is redacted in the response of exec, and so is the reason if it did not
// start. Without a redactor nothing runs.
func TestExecIsRedacted(t *testing.T) {
	fake, r := withGuest(t, secretGuest{})
	redactor, err := sandbox.NewRedactor([]redact.Value{{Name: "KEY", Data: []byte(sealedValue)}}, sandbox.RedactorOptions{Outputs: true})
	if err != nil {
		t.Fatal(err)
	}
	for shown, m := range map[string]*sandbox.Redactor{sealedValue: nil, "[redacted:KEY]": redactor} {
		fake.redactor = m
		var out api.ExecResult
		if code, p := r.call("POST", "/v1/sandboxes/i1/exec", `{"cmd":["x"]}`, &out); code != http.StatusOK {
			t.Fatalf("POST /v1/sandboxes/i1/exec: got %d %+v", code, p)
		}
		if out.Stdout != "a "+shown+"\n" || out.Stderr != shown || out.ExitCode != 3 {
			t.Errorf("%+v, want %s", out, shown)
		}
		_, p := r.call("POST", "/v1/sandboxes/i1/exec", `{"cmd":["absent"]}`, nil)
		if !strings.Contains(p.Detail, "no "+shown) {
			t.Errorf("%+v, want %s", p, shown)
		}
	}
	fake.redactor, fake.failure = nil, fault.New(fault.Unavailable, "mask_unavailable", "closed")
	if _, p := r.call("POST", "/v1/sandboxes/i1/exec", `{"cmd":["x"]}`, nil); p.Code != "mask_unavailable" {
		t.Errorf("POST /v1/sandboxes/i1/exec: got %+v", p)
	}
}
