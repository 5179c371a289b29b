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

// eater is a guest with one program, which reads until its input ends.
type eater struct {
	processpbconnect.UnimplementedProcessHandler
	bodies bool
	refuse error // of input

	mu     sync.Mutex
	got    []byte
	reads  []string
	killed bool
	ended  chan struct{}
}

func (e *eater) Start(ctx context.Context, _ *connect.Request[processpb.StartRequest], s *connect.ServerStream[processpb.StartResponse]) error {
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

func (e *eater) eat(way string, data []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got, e.reads = append(e.got, data...), append(e.reads, way)
}

func (e *eater) SendInput(_ context.Context, r *connect.Request[processpb.SendInputRequest]) (*connect.Response[processpb.SendInputResponse], error) {
	if e.refuse != nil {
		return nil, e.refuse
	}
	e.eat("call", r.Msg.GetInput().GetStdin())
	return connect.NewResponse(&processpb.SendInputResponse{}), nil
}

func (e *eater) CloseStdin(context.Context, *connect.Request[processpb.CloseStdinRequest]) (*connect.Response[processpb.CloseStdinResponse], error) {
	close(e.ended)
	return connect.NewResponse(&processpb.CloseStdinResponse{}), nil
}

func (e *eater) SendSignal(context.Context, *connect.Request[processpb.SendSignalRequest]) (*connect.Response[processpb.SendSignalResponse], error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.killed = true
	return connect.NewResponse(&processpb.SendSignalResponse{}), nil
}

// feed feeds a program of e.
func (e *eater) feed(t *testing.T, r io.Reader) (exit Exit, err error) {
	t.Helper()
	e.ended = make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle(processpbconnect.NewProcessHandler(e))
	mux.HandleFunc("POST "+guestwire.StdinPath, func(w http.ResponseWriter, r *http.Request) {
		if e.refuse != nil {
			guestwire.RefuseStdin(w, r, e.refuse)
			return
		}
		data, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Query().Get("pid") != "7" || r.Header.Get("X-Access-Token") != "token" || int64(len(data)) != r.ContentLength {
			t.Errorf("%s %v: %d bytes of %d, %v", r.URL, r.Header, len(data), r.ContentLength, err)
		}
		e.eat("body", data)
		w.WriteHeader(http.StatusNoContent)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	p, err := New(server.Client(), server.URL, http.Header{"X-Access-Token": {"token"}}).Start(t.Context(), Spec{Cmd: "cat", Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	inputError := make(chan struct{})
	go func() {
		defer close(inputError)
		p.Feed(t.Context(), r)
	}()
	if e.refuse != nil {
		<-inputError // the program continues without it
		close(e.ended)
	}
	exit, err = p.Stream(io.Discard, io.Discard)
	<-inputError
	return exit, err
}

// F29: bulk input is sent as the body of a request, little input in a call, and all of it to a
// guest of an earlier version in calls. In calls, 1 GB took a quarter of a minute.
func TestF29BulkInputIsSentAsABody(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
	for name, c := range map[string]struct {
		guest *eater
		input []byte
		reads []string // in any number
	}{
		"much":             {&eater{bodies: true}, large, []string{"body"}},
		"little":           {&eater{bodies: true}, []byte("little"), []string{"call"}},
		"an earlier guest": {&eater{}, large, []string{"call"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.guest.feed(t, bytes.NewReader(c.input)); err != nil {
				t.Fatal(err)
			}
			if ways := slices.Compact(c.guest.reads); !slices.Equal(ways, c.reads) || !bytes.Equal(c.guest.got, c.input) {
				t.Errorf("%d bytes came by %v", len(c.guest.got), ways)
			}
		})
	}
}

// F29: a program that accepts no more input is not killed, however the input was sent. A program
// whose input is lost is killed. Before the fix, programs that had closed their input and continued
// were killed a second later.
func TestF29RefusedInput(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 4*bodyLeast)
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
				e := &eater{bodies: bodies, refuse: c.err}
				if _, err := e.feed(t, bytes.NewReader(large)); err != nil || e.killed != c.killed {
					t.Errorf("killed %t, %v", e.killed, err)
				}
			})
		}
	}
}
