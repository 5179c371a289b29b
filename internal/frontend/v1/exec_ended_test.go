package v1

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/client"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/sandbox"
)

// abortingGuest is a guest that ends before its commands do.
type abortingGuest struct {
	processpbconnect.UnimplementedProcessHandler
}

func (abortingGuest) Start(_ context.Context, req *connect.Request[pb.StartRequest], s *connect.ServerStream[pb.StartResponse]) error {
	if req.Msg.GetProcess().GetCmd() != "early" {
		start := &pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: 7}}}
		if err := s.Send(&pb.StartResponse{Event: start}); err != nil {
			return err
		}
	}
	panic(http.ErrAbortHandler)
}

const execPath = "/v1/sandboxes/i1/exec"

// If a sandbox ends before a command was sent to it, exec looks it up again, and returns a conflict
// if it does not find it.
func TestExecRetriesChangedSandbox(t *testing.T) {
	for times, want := range map[int]int{1: http.StatusOK, 2: http.StatusOK, 3: http.StatusConflict} {
		fake, r := withGuest(t, secretGuest{})
		fake.dialError = func(dial int) error {
			if dial <= times {
				return fault.New(fault.Conflict, sandbox.CodeChanged, "it is resuming; try again")
			}
			return nil
		}
		code, p := r.call("POST", execPath, `{"cmd":["x"]}`, nil)
		if code != want || want != http.StatusOK && (p.Code != sandbox.CodeChanged || p.Detail != "it is resuming; try again") {
			t.Errorf("changed %d times: %d %+v", times, code, p)
		}
	}
}

// An error between the server and the guest is not shown to callers, and a running sandbox is not
// reported as ended.
func TestExecWhoseSandboxEnds(t *testing.T) {
	fake, r := withGuest(t, secretGuest{})
	fake.dialError = func(int) error { return errors.New(`dial i1:1: urpc method "containerManager.PortForward" failed`) }
	code, p := r.call("POST", execPath, `{"cmd":["x"]}`, nil)
	if code != http.StatusServiceUnavailable || p.Code != client.CodeLost || strings.Contains(p.Detail, "urpc") {
		t.Errorf("not dialed: %d %+v", code, p)
	}
	for _, cmd := range []string{"early", "late"} {
		fake, r = withGuest(t, abortingGuest{})
		fake.gone, fake.state = make(chan struct{}), ""
		close(fake.gone)
		code, p = r.call("POST", execPath, `{"cmd":["`+cmd+`"]}`, nil)
		if code != http.StatusServiceUnavailable || p.Code != client.CodeLost || !strings.Contains(p.Detail, "rolled back") || !strings.Contains(p.Detail, "running now") {
			t.Errorf("%s: %d %+v", cmd, code, p)
		}
	}
}
