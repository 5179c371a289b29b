package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/guest/guestwire"
)

// inputGuest is a guest with one program that reads until its input ends.
type inputGuest struct {
	processpbconnect.UnimplementedProcessHandler
	bodies bool  // accepts input as the body of a request
	reject error // answer to input, if not nil

	mu     sync.Mutex
	got    []byte   // input
	reads  []string // how each piece of input was sent: call or body
	killed bool
	ended  chan struct{}
}

func (e *inputGuest) Start(ctx context.Context, _ *connect.Request[processpb.StartRequest], s *connect.ServerStream[processpb.StartResponse]) error {
	if e.bodies {
		s.ResponseHeader().Set(guestwire.StdinHeader, guestwire.StdinBody)
	}
	start := &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Start{Start: &processpb.ProcessEvent_StartEvent{Pid: 7}}}
	if err := s.Send(&processpb.StartResponse{Event: start}); err != nil {
		return err
	}
	select {
	case <-e.ended:
	case <-ctx.Done():
	}
	end := &processpb.ProcessEvent{Event: &processpb.ProcessEvent_End{End: &processpb.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}}}
	return s.Send(&processpb.StartResponse{Event: end})
}

func (e *inputGuest) receive(how string, data []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got, e.reads = append(e.got, data...), append(e.reads, how)
}

func (e *inputGuest) SendInput(_ context.Context, r *connect.Request[processpb.SendInputRequest]) (*connect.Response[processpb.SendInputResponse], error) {
	if e.reject != nil {
		return nil, e.reject
	}
	e.receive("call", r.Msg.GetInput().GetStdin())
	return connect.NewResponse(&processpb.SendInputResponse{}), nil
}

func (e *inputGuest) CloseStdin(context.Context, *connect.Request[processpb.CloseStdinRequest]) (*connect.Response[processpb.CloseStdinResponse], error) {
	close(e.ended)
	return connect.NewResponse(&processpb.CloseStdinResponse{}), nil
}

func (e *inputGuest) SendSignal(context.Context, *connect.Request[processpb.SendSignalRequest]) (*connect.Response[processpb.SendSignalResponse], error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.killed = true
	return connect.NewResponse(&processpb.SendSignalResponse{}), nil
}

// feed sends input to the program and returns how it ended.
func (e *inputGuest) feed(t *testing.T, r io.Reader) (exit Exit, err error) {
	t.Helper()
	e.ended = make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle(processpbconnect.NewProcessHandler(e))
	mux.HandleFunc("POST "+guestwire.StdinPath, func(w http.ResponseWriter, r *http.Request) {
		if e.reject != nil {
			guestwire.RejectStdin(w, r, e.reject)
			return
		}
		data, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Query().Get("pid") != "7" || r.Header.Get("X-Access-Token") != "token" || int64(len(data)) != r.ContentLength {
			t.Errorf("%s %v: %d bytes of %d, %v", r.URL, r.Header, len(data), r.ContentLength, err)
		}
		e.receive("body", data)
		w.WriteHeader(http.StatusNoContent)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	p, err := New(server.Client(), server.URL, http.Header{"X-Access-Token": {"token"}}).Start(t.Context(), Spec{Cmd: "cat", Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		p.Feed(t.Context(), r)
	}()
	if e.reject != nil {
		<-fed // the program continues without input
		close(e.ended)
	}
	exit, err = p.Stream(io.Discard, io.Discard)
	<-fed
	return exit, err
}

// F29: bulk input is sent as the body of a request, and little input in a call. A guest of an
// earlier version gets all input in calls. In calls, 1 GB took a quarter of a minute.
func TestF29BulkInputIsSentAsABody(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
	for name, c := range map[string]struct {
		guest *inputGuest
		input []byte
		reads []string // in any number
	}{
		"much":             {&inputGuest{bodies: true}, large, []string{"body"}},
		"little":           {&inputGuest{bodies: true}, []byte("little"), []string{"call"}},
		"an earlier guest": {&inputGuest{}, large, []string{"call"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.guest.feed(t, bytes.NewReader(c.input)); err != nil {
				t.Fatal(err)
			}
			if reads := slices.Compact(c.guest.reads); !slices.Equal(reads, c.reads) || !bytes.Equal(c.guest.got, c.input) {
				t.Errorf("got %d bytes by %v, want %d by %v", len(c.guest.got), reads, len(c.input), c.reads)
			}
		})
	}
}

// F29: a program that accepts no more input is not killed, however the input was sent. A program
// whose input is lost is killed. Before the fix, programs that had closed their input and continued
// were killed a second later.
func TestF29ProgramIsKilledOnlyIfInputIsLost(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 4*minBody)
	for name, c := range map[string]struct {
		err    error
		killed bool
	}{
		"closed": {connect.NewError(connect.CodeInternal, errors.New(guestwire.StdinClosed)), false},
		"ended":  {connect.NewError(connect.CodeNotFound, errors.New("no process 7")), false},
		"lost":   {connect.NewError(connect.CodeInternal, errors.New("input/output error")), true},
	} {
		for _, bodies := range []bool{true, false} {
			t.Run(fmt.Sprint(name, bodies), func(t *testing.T) {
				e := &inputGuest{bodies: bodies, reject: c.err}
				if _, err := e.feed(t, bytes.NewReader(large)); err != nil || e.killed != c.killed {
					t.Errorf("program killed: got %t, %v, want %t", e.killed, err, c.killed)
				}
			})
		}
	}
}
