package client

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// exitingGuest is a guest whose programs end at once. Their streams end when hold returns.
type exitingGuest struct {
	processpbconnect.UnimplementedProcessHandler
	hold func(context.Context)
}

func (e exitingGuest) Start(ctx context.Context, _ *connect.Request[processpb.StartRequest], s *connect.ServerStream[processpb.StartResponse]) error {
	for _, event := range []*processpb.ProcessEvent{
		{Event: &processpb.ProcessEvent_Start{Start: &processpb.ProcessEvent_StartEvent{Pid: 7}}},
		{Event: &processpb.ProcessEvent_End{End: &processpb.ProcessEvent_EndEvent{Exited: true, ExitCode: 3, Status: "exit status 3"}}},
	} {
		if err := s.Send(&processpb.StartResponse{Event: event}); err != nil {
			return err
		}
	}
	e.hold(ctx)
	return nil
}

// connections runs two programs and counts the connections that they used.
func connections(t *testing.T, hold func(context.Context)) int64 {
	t.Helper()
	var opened atomic.Int64
	mux := http.NewServeMux()
	mux.Handle(processpbconnect.NewProcessHandler(exitingGuest{hold: hold}))
	server := httptest.NewUnstartedServer(mux)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	client := New(server.Client(), server.URL, nil)
	for range 2 {
		p, err := client.Start(t.Context(), Spec{Cmd: "true"})
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := p.Stream(io.Discard, io.Discard); err != nil || exit.Code != 3 {
			t.Fatalf("Stream: got %+v, %v, want exit code 3", exit, err)
		}
	}
	return opened.Load()
}

// A program uses the connection of an earlier program that has ended.
func TestConnectionIsReused(t *testing.T) {
	// On a busy machine the end may come late.
	defer func(before time.Duration) { drainTimeout = before }(drainTimeout)
	drainTimeout = hosttest.Patience(hosttest.Hang)
	if n := connections(t, func(context.Context) {}); n != 1 {
		t.Errorf("two programs, one after the other, took %d connections", n)
	}
}

// A guest that never ends its stream does not delay a caller that already knows how the program
// ended.
func TestStreamDoesNotWaitForEndOfAnswer(t *testing.T) {
	ended := make(chan struct{})
	late := time.AfterFunc(hosttest.Patience(hosttest.Hang), func() {
		select {
		case <-ended:
		default:
			panic("the caller waits for the end of the stream")
		}
	})
	defer late.Stop()
	if n := connections(t, func(ctx context.Context) { <-ctx.Done() }); n != 2 {
		t.Errorf("got %d connections, want 2", n)
	}
	close(ended)
}
