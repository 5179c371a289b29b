package process_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/guest/guestwire"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/process"
	"github.com/crannog/crannog/internal/guest/reap"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// testService is a service behind a Unix socket and a JSON client of it.
type testService struct {
	processpbconnect.ProcessClient
	service *process.Service
	http    *http.Client
	home    string
}

// newTestService returns a service whose configuration change may edit.
func newTestService(t testing.TB, change func(*process.Config)) *testService {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	user := identity.User{Name: "user", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: home}
	cfg := process.Config{
		Accounts: identity.Accounts{Users: identity.Fixed{user}, Default: "user"},
		Reaper:   reap.Each{},
		Env:      func() map[string]string { return map[string]string{"SANDBOX": "yes", "BOTH": "sandbox"} },
		Path:     "/usr/local/bin:/usr/bin:/bin",
	}
	if change != nil {
		change(&cfg)
	}
	service := process.New(cfg)
	mux := http.NewServeMux()
	// The guest has no compression either. It would reduce the amount of data that is in flight.
	mux.Handle(service.Handler(connect.WithCompressMinBytes(1 << 30)))
	mux.HandleFunc("POST "+guestwire.StdinPath, service.Stdin)
	client := hosttest.ServeUnix(t, mux)
	t.Cleanup(func() {
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	return &testService{
		ProcessClient: processpbconnect.NewProcessClient(client, "http://guest", connect.WithProtoJSON()),
		service:       service,
		http:          client,
		home:          home,
	}
}

// shell returns a request that starts a shell command.
func shell(command string) *pb.StartRequest {
	return &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", command}}}
}

// stream is a started process.
type stream struct {
	t   testing.TB
	in  *connect.ServerStreamForClient[pb.StartResponse]
	pid uint32
}

// start starts a process.
func (b *testService) start(t testing.TB, req *pb.StartRequest) *stream {
	t.Helper()
	return b.startContext(t.Context(), t, connect.NewRequest(req))
}

func (b *testService) startContext(ctx context.Context, t testing.TB, req *connect.Request[pb.StartRequest]) *stream {
	t.Helper()
	in, err := b.Start(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{t: t, in: in}
	if !in.Receive() {
		t.Fatalf("got no start event: %v", in.Err())
	}
	start := in.Msg().GetEvent().GetStart()
	if start == nil {
		t.Fatalf("got the first event %v", in.Msg())
	}
	s.pid = start.GetPid()
	return s
}

func (s *stream) selector() *pb.ProcessSelector {
	return &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: s.pid}}
}

// result is the output of a process and its end.
type result struct {
	stdout, stderr, tty string
	end                 *pb.ProcessEvent_EndEvent
	keepalives          int
	err                 error
}

// finish receives until the stream ends.
func (s *stream) finish() result {
	var r result
	for s.in.Receive() {
		r.add(s.in.Msg().GetEvent())
	}
	r.err = s.in.Err()
	return r
}

func (r *result) add(e *pb.ProcessEvent) {
	r.stdout += string(e.GetData().GetStdout())
	r.stderr += string(e.GetData().GetStderr())
	r.tty += string(e.GetData().GetPty())
	if e.GetKeepalive() != nil {
		r.keepalives++
	}
	if e.GetEnd() != nil {
		r.end = e.GetEnd()
	}
}

// until receives until the output contains want.
func (s *stream) until(want string) {
	s.t.Helper()
	var r result
	for s.in.Receive() {
		r.add(s.in.Msg().GetEvent())
		if strings.Contains(r.stdout+r.tty, want) {
			return
		}
	}
	s.t.Fatalf("the stream ended before %q: got %+v, %v", want, r, s.in.Err())
}

// basic returns the Authorization header for a user.
func basic(name string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"))
}
