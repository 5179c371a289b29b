package ingress_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/guest/codec"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

const (
	sealedValue = "tk-Zr8qP2mW/Lx4vB9+cd"
	knownToken  = "ghp_0123456789abcdefABCDEF0123456789abcd"
)

func maskOf(t testing.TB, o sandbox.RedactorOptions, values ...string) *sandbox.Redactor {
	t.Helper()
	var list []redact.Value
	for _, v := range values {
		list = append(list, redact.Value{Name: "KEY", Data: []byte(v)})
	}
	m, err := sandbox.NewRedactor(list, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// valueMask is the redactor of a sandbox whose policy binds one secret.
func valueMask(t testing.TB) *sandbox.Redactor {
	return maskOf(t, sandbox.RedactorOptions{Outputs: true, Patterns: true}, sealedValue)
}

// setRedactor sets the redactor of the sandbox. Nil means none.
func (w *testProxy) setRedactor(m *sandbox.Redactor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sandboxes[boxID].redactor = m
}

// scriptedGuest is a guest whose processes send the events of a script.
type scriptedGuest struct {
	processpbconnect.UnimplementedProcessHandler
	script func(send func(*pb.ProcessEvent) error) error
}

func (p *scriptedGuest) Start(_ context.Context, _ *connect.Request[pb.StartRequest], s *connect.ServerStream[pb.StartResponse]) error {
	return p.script(func(e *pb.ProcessEvent) error { return s.Send(&pb.StartResponse{Event: e}) })
}

func (p *scriptedGuest) Connect(_ context.Context, _ *connect.Request[pb.ConnectRequest], s *connect.ServerStream[pb.ConnectResponse]) error {
	return p.script(func(e *pb.ProcessEvent) error { return s.Send(&pb.ConnectResponse{Event: e}) })
}

func (p *scriptedGuest) List(context.Context, *connect.Request[pb.ListRequest]) (*connect.Response[pb.ListResponse], error) {
	return connect.NewResponse(&pb.ListResponse{Processes: []*pb.ProcessInfo{
		{Pid: 7, Config: &pb.ProcessConfig{Cmd: "curl", Args: []string{"-H", "X-Key: " + sealedValue}}},
	}}), nil
}

// printed returns an output event of a stream.
func printed(from string, data string) *pb.ProcessEvent {
	d := &pb.ProcessEvent_DataEvent{}
	switch from {
	case "stdout":
		d.Output = &pb.ProcessEvent_DataEvent_Stdout{Stdout: []byte(data)}
	case "stderr":
		d.Output = &pb.ProcessEvent_DataEvent_Stderr{Stderr: []byte(data)}
	case "pty":
		d.Output = &pb.ProcessEvent_DataEvent_Pty{Pty: []byte(data)}
	}
	return &pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: d}}
}

// ended returns the end event of a process.
func ended() *pb.ProcessEvent {
	failed := "exit status 3: " + sealedValue
	return &pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: &pb.ProcessEvent_EndEvent{ExitCode: 3, Exited: true, Status: "exit status 3", Error: &failed}}}
}

func keepalive() *pb.ProcessEvent {
	return &pb.ProcessEvent{Event: &pb.ProcessEvent_Keepalive{Keepalive: &pb.ProcessEvent_KeepAlive{}}}
}

// processOutput is the data that a client received from a process.
type processOutput struct {
	text map[string]string
	end  *pb.ProcessEvent_EndEvent
	// events counts the events of each kind.
	events map[string]int
}

func (h *processOutput) add(e *pb.ProcessEvent) {
	if h.text == nil {
		h.text, h.events = map[string]string{}, map[string]int{}
	}
	switch {
	case e.GetEnd() != nil:
		h.end = e.GetEnd()
	case e.GetKeepalive() != nil:
		h.events["keepalive"]++
	case e.GetData().GetStdout() != nil:
		h.text["stdout"] += string(e.GetData().GetStdout())
	case e.GetData().GetStderr() != nil:
		h.text["stderr"] += string(e.GetData().GetStderr())
	case e.GetData().GetPty() != nil:
		h.text["pty"] += string(e.GetData().GetPty())
	}
}

// protocols are the protocols of clients of the process service.
var protocols = map[string][]connect.ClientOption{
	"json":         {connect.WithProtoJSON()},
	"binary":       {},
	"grpc-web":     {connect.WithGRPCWeb()},
	"json grpcweb": {connect.WithGRPCWeb(), connect.WithProtoJSON()},
	"wants gzip":   {connect.WithAcceptCompression("gzip", nil, nil)},
}

func (w *testProxy) processes(t testing.TB, options ...connect.ClientOption) processpbconnect.ProcessClient {
	t.Helper()
	return processpbconnect.NewProcessClient(&addressed{w.front.Client()}, w.front.URL, options...)
}

// addressed names the sandbox on each request.
type addressed struct{ client *http.Client }

func (a *addressed) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("E2b-Sandbox-Id", boxID)
	r.Header.Set("E2b-Sandbox-Port", fmt.Sprint(guestboot.Port))
	return a.client.Do(r)
}

// play runs a script and returns what a client of a protocol receives.
func (w *testProxy) play(t *testing.T, p *scriptedGuest, attach bool, options ...connect.ClientOption) processOutput {
	t.Helper()
	var h processOutput
	client := w.processes(t, options...)
	if attach {
		s, err := client.Connect(t.Context(), connect.NewRequest(&pb.ConnectRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		for s.Receive() {
			h.add(s.Msg().GetEvent())
		}
		if err := s.Err(); err != nil {
			t.Error(err)
		}
		return h
	}
	s, err := client.Start(t.Context(), connect.NewRequest(&pb.StartRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	for s.Receive() {
		h.add(s.Msg().GetEvent())
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
	return h
}

func (w *testProxy) guestPlays(p *scriptedGuest) {
	mux := http.NewServeMux()
	mux.Handle(processpbconnect.NewProcessHandler(p, connect.WithCodec(codec.JSON{})))
	w.serve(boxID, guestboot.Port, mux)
}

// TestProcessOutputIsRedacted checks each stream, each protocol and several ways to cut the output:
// a value is redacted, and all other output arrives unchanged.
func TestProcessOutputIsRedacted(t *testing.T) {
	w := newTestProxy(t)
	text := "a " + sealedValue + " b " + sealedValue[:12]
	pieces := map[string]func(func(string) error) error{
		"whole":       func(emit func(string) error) error { return emit(text) },
		"single byte": func(emit func(string) error) error { return eachByte(text, emit) },
		"cut in two":  func(emit func(string) error) error { return errors.Join(emit(text[:13]), emit(text[13:])) },
	}
	p := &scriptedGuest{}
	w.guestPlays(p)
	for piece, emitPieces := range pieces {
		p.script = func(send func(*pb.ProcessEvent) error) error {
			err := emitPieces(func(s string) error {
				// The streams are split alike and must not be mixed.
				return errors.Join(send(printed("stdout", s)), send(printed("stderr", s)), send(keepalive()), send(printed("pty", s)))
			})
			return errors.Join(err, send(ended()))
		}
		for name, options := range protocols {
			for _, attach := range []bool{false, true} {
				w.setRedactor(nil)
				plain := w.play(t, p, attach, options...)
				w.setRedactor(valueMask(t))
				got := w.play(t, p, attach, options...)
				for _, from := range []string{"stdout", "stderr", "pty"} {
					// The control: the same bytes without a redactor.
					if plain.text[from] != text {
						t.Errorf("%s, %s, %v: %s without a redactor: %q", piece, name, attach, from, plain.text[from])
					}
					want := "a [redacted:KEY] b [redacted:KEY]"
					if piece == "single byte" {
						// Fewer than six characters are not held back, because terminals would
						// stall.
						want = "a tk-Zr[redacted:KEY] b tk-Zr[redacted:KEY]"
					}
					if got.text[from] != want {
						t.Errorf("%s, %s, %v: %s: %q", piece, name, attach, from, got.text[from])
					}
				}
				if got.end.GetExitCode() != 3 || got.end.GetError() != "exit status 3: [redacted:KEY]" || got.end.GetStatus() != "exit status 3" ||
					plain.end.GetError() != "exit status 3: "+sealedValue {
					t.Errorf("%s, %s: end %v, without a redactor %v", piece, name, got.end, plain.end)
				}
				if got.events["keepalive"] != plain.events["keepalive"] || got.events["keepalive"] == 0 {
					t.Errorf("%s, %s: %v keepalives of %v", piece, name, got.events, plain.events)
				}
			}
		}
	}
}

func eachByte(text string, emit func(string) error) error {
	var errs []error
	for i := range len(text) {
		errs = append(errs, emit(text[i:i+1]))
	}
	return errors.Join(errs...)
}

// TestTerminalOutputIsSentAtOnce checks that a terminal shows each key at once, even if the key
// could begin a value. A value whose halves arrive at different times is redacted.
func TestTerminalOutputIsSentAtOnce(t *testing.T) {
	w := newTestProxy(t)
	w.setRedactor(valueMask(t))
	seen, release := make(chan struct{}), make(chan struct{}, 1)
	p := &scriptedGuest{script: func(send func(*pb.ProcessEvent) error) error {
		for _, key := range "tk-Zr" { // five letters of the value
			if err := send(printed("pty", string(key))); err != nil {
				return err
			}
			<-seen // waits until the client has received the key
		}
		err := errors.Join(send(printed("pty", "!"+sealedValue[:10])), send(keepalive()))
		<-release
		return errors.Join(err, send(printed("pty", sealedValue[10:]+".")), send(ended()))
	}}
	w.guestPlays(p)
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	s, err := w.processes(t).Start(ctx, connect.NewRequest(&pb.StartRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	var h processOutput
	for i := range 5 {
		if !s.Receive() {
			t.Fatalf("key %d did not arrive: %v", i, s.Err())
		}
		h.add(s.Msg().GetEvent())
		seen <- struct{}{}
	}
	for h.events["keepalive"] == 0 {
		if !s.Receive() {
			t.Fatalf("the keepalive did not arrive: %v", s.Err())
		}
		h.add(s.Msg().GetEvent())
	}
	if h.text["pty"] != "tk-Zr!" {
		t.Errorf("before the second half of the value: got %q, want \"tk-Zr!\"", h.text["pty"])
	}
	release <- struct{}{}
	for s.Receive() {
		h.add(s.Msg().GetEvent())
	}
	if h.text["pty"] != "tk-Zr![redacted:KEY]." || h.end == nil {
		t.Errorf("%q, end %v, %v", h.text["pty"], h.end, s.Err())
	}
}

// TestStreamErrorsAreRedacted checks a stream that ends in an error: output that was held back is
// sent first, and the error is redacted too.
func TestStreamErrorsAreRedacted(t *testing.T) {
	w := newTestProxy(t)
	p := &scriptedGuest{script: func(send func(*pb.ProcessEvent) error) error {
		err := send(printed("stdout", "x tk-Zr8q"))
		return errors.Join(err, connect.NewError(connect.CodeInvalidArgument, errors.New("no "+sealedValue+" here")))
	}}
	w.guestPlays(p)
	for name, options := range protocols {
		for _, m := range []*sandbox.Redactor{nil, valueMask(t)} {
			w.setRedactor(m)
			s, err := w.processes(t, options...).Start(t.Context(), connect.NewRequest(&pb.StartRequest{}))
			if err != nil {
				t.Fatal(err)
			}
			var h processOutput
			for s.Receive() {
				h.add(s.Msg().GetEvent())
			}
			err = s.Err()
			if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.HasPrefix(h.text["stdout"], "x ") {
				t.Errorf("%s: %v after %q", name, err, h.text)
			}
			if shown := strings.Contains(fmt.Sprint(err), sealedValue); shown != (m == nil) {
				t.Errorf("%s, redactor %v: %v", name, m != nil, err)
			}
		}
	}
}

// TestPatternsInOutput checks that known forms of tokens are redacted in output, even without any
// secret.
func TestPatternsInOutput(t *testing.T) {
	w := newTestProxy(t)
	p := &scriptedGuest{script: func(send func(*pb.ProcessEvent) error) error {
		return errors.Join(send(printed("stdout", knownToken[:20])), send(printed("stdout", knownToken[20:]+"\n")), send(ended()))
	}}
	w.guestPlays(p)
	w.setRedactor(maskOf(t, sandbox.RedactorOptions{Outputs: true, Patterns: true}))
	if got := w.play(t, p, false, connect.WithProtoJSON()).text["stdout"]; got != "[redacted:github-token]\n" {
		t.Errorf("stdout: got %q", got)
	}
	w.setRedactor(maskOf(t, sandbox.RedactorOptions{Outputs: true}))
	if got := w.play(t, p, false, connect.WithProtoJSON()).text["stdout"]; got != knownToken+"\n" {
		t.Errorf("without patterns: %q", got)
	}
	// Outputs that the policy excludes from redaction are not redacted, except for patterns.
	w.setRedactor(maskOf(t, sandbox.RedactorOptions{Patterns: true}, sealedValue))
	if got := w.play(t, p, false); got.end.GetError() != "exit status 3: "+sealedValue || got.text["stdout"] != "[redacted:github-token]\n" {
		t.Errorf("output excluded from redaction: got %v", got)
	}
}

// TestUnaryResponsesAreRedacted checks responses of one message, in every codec.
func TestUnaryResponsesAreRedacted(t *testing.T) {
	w := newTestProxy(t)
	w.guestPlays(&scriptedGuest{})
	for name, options := range protocols {
		for _, m := range []*sandbox.Redactor{nil, valueMask(t)} {
			w.setRedactor(m)
			res, err := w.processes(t, options...).List(t.Context(), connect.NewRequest(&pb.ListRequest{}))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			arg := res.Msg.GetProcesses()[0].GetConfig().GetArgs()[1]
			want := "X-Key: " + sealedValue
			if m != nil {
				want = "X-Key: " + strings.Repeat("*", len(sealedValue))
			}
			if arg != want {
				t.Errorf("%s, redactor %v: %q", name, m != nil, arg)
			}
		}
	}
}
