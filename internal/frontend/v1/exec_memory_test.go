package v1

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/guest/client"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
)

// verboseGuest is a guest whose commands print 600 KiB, or more than they may.
type verboseGuest struct {
	processpbconnect.UnimplementedProcessHandler
}

const verboseBytes = 600 << 10

func (verboseGuest) Start(_ context.Context, req *connect.Request[pb.StartRequest], s *connect.ServerStream[pb.StartResponse]) error {
	err := s.Send(&pb.StartResponse{Event: &pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: 7}}}})
	for range verboseBytes / (20 << 10) {
		err = errors.Join(err, s.Send(&pb.StartResponse{Event: &pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: &pb.ProcessEvent_DataEvent{
			Output: &pb.ProcessEvent_DataEvent_Stdout{Stdout: bytes.Repeat([]byte("x"), 20<<10)},
		}}}}))
	}
	if req.Msg.GetProcess().GetCmd() == "lost" {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("no more"))
	}
	return errors.Join(err, s.Send(&pb.StartResponse{Event: &pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: &pb.ProcessEvent_EndEvent{Exited: true}}}}))
}

// blockedWriter is a client that reads nothing of an answer before it is allowed to.
type blockedWriter struct {
	*httptest.ResponseRecorder
	arrived, release chan struct{}
}

func (r *blockedWriter) Write(b []byte) (int, error) {
	select {
	case r.arrived <- struct{}{}:
	case <-r.release:
	}
	<-r.release
	return r.ResponseRecorder.Write(b)
}

// Callers that do not read their responses cannot fill the server's memory with output: the budget
// for others shrinks at once, until the response is written or the call ends in another way.
func TestExecOutputMemoryIsBounded(t *testing.T) {
	_, r := withGuest(t, verboseGuest{})
	r.deps.Output = client.NewBudget(verboseBytes)
	r.with(r.deps)
	checkOutput := func(when string, want bool) {
		t.Helper()
		var out api.ExecResult
		if code, p := r.call("POST", "/v1/sandboxes/i1/exec", `{"cmd":["x"]}`, &out); code != http.StatusOK {
			t.Fatalf("%s: %d %+v", when, code, p)
		}
		if out.Truncated == want || want != (len(out.Stdout) == verboseBytes) || len(out.Stdout) == 0 || !want && out.Hit != api.HitOutput {
			t.Errorf("%s: %d bytes, truncated %v, hit %q", when, len(out.Stdout), out.Truncated, out.Hit)
		}
	}
	for range 3 {
		checkOutput("one after the other", true)
	}
	for range 3 {
		if code, _ := r.call("POST", "/v1/sandboxes/i1/exec", `{"cmd":["lost"]}`, nil); code < 300 {
			t.Errorf("POST /v1/sandboxes/i1/exec: got %d", code)
		}
	}
	checkOutput("after calls that failed", true)
	slow := &blockedWriter{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		req := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/sandboxes/i1/exec", strings.NewReader(`{"cmd":["x"]}`))
		req.Header.Set("Content-Type", "application/json")
		r.handler.ServeHTTP(slow, req)
	}()
	<-slow.arrived
	checkOutput("while one is not read", false)
	close(slow.release)
	<-done
	checkOutput("after it was read", true)
}
