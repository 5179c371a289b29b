package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/guestwire"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// writeBody sends input as the body of a request, and returns the error if it was not accepted.
func (b *testService) writeBody(ctx context.Context, t *testing.T, pid any, body io.Reader) error {
	t.Helper()
	url := fmt.Sprintf("http://guest%s?pid=%v", guestwire.StdinPath, pid)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if sized, ok := body.(interface{ Len() int }); ok {
		req.ContentLength = int64(sized.Len())
	}
	res, err := b.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return guestwire.StdinError(res)
}

// F29: the bodies of requests are written in order, whatever their size, and SendInput still works.
func TestF29BodyIsWrittenToStdin(t *testing.T) {
	b := newTestService(t, nil)
	s := b.start(t, shell("wc -c; echo end"))
	if got := s.in.ResponseHeader().Get(guestwire.StdinHeader); got != guestwire.StdinBody {
		t.Errorf("got the header %q, want %q", got, guestwire.StdinBody)
	}
	large := make([]byte, guestwire.MaxStdin)
	for _, body := range [][]byte{large, []byte("small"), large} {
		if err := b.writeBody(t.Context(), t, s.pid, bytes.NewReader(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.feed(t, s, "call"); err != nil {
		t.Fatal(err)
	}
	if err := b.closeStdin(t, s); err != nil {
		t.Fatal(err)
	}
	if got, want := s.finish().stdout, fmt.Sprintf("%d\nend\n", 2*len(large)+9); got != want {
		t.Errorf("written input: got %q, want %q", got, want)
	}
}

// F29: rejected input gives the errors of SendInput. The guest reads the whole body first, because
// the answer would otherwise be lost.
func TestF29RejectedBodyGivesAConnectError(t *testing.T) {
	b := newTestService(t, nil)
	closed := b.start(t, shell("exec <&-; echo closed; sleep 1000"))
	closed.until("closed\n")
	tty := b.start(t, &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "/bin/cat"}, Pty: &pb.PTY{Size: &pb.PTY_Size{Cols: 80, Rows: 24}}})
	no := false
	without := b.start(t, &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "/bin/sleep", Args: []string{"1000"}}, Stdin: &no})
	large := make([]byte, guestwire.MaxStdin)
	for name, c := range map[string]struct {
		pid  any
		body io.Reader
		code connect.Code
	}{
		"closed":         {closed.pid, bytes.NewReader(large), connect.CodeInternal},
		"terminal":       {tty.pid, bytes.NewReader(large), connect.CodeFailedPrecondition},
		"no input":       {without.pid, bytes.NewReader(large), connect.CodeFailedPrecondition},
		"no process":     {999_999_999, bytes.NewReader(large), connect.CodeNotFound},
		"invalid PID":    {"x", bytes.NewReader(large), connect.CodeInvalidArgument},
		"too long":       {closed.pid, bytes.NewReader(append(large, 0)), connect.CodeInvalidArgument},
		"without length": {closed.pid, struct{ io.Reader }{bytes.NewReader([]byte("x"))}, connect.CodeInvalidArgument},
	} {
		err := b.writeBody(t.Context(), t, c.pid, c.body)
		if connect.CodeOf(err) != c.code || !connect.IsWireError(err) {
			t.Errorf("input for %s: got %v, want %v", name, err, c.code)
		}
	}
	// This message tells the client that it can stop sending input.
	var wireErr *connect.Error
	if err := b.writeBody(t.Context(), t, closed.pid, bytes.NewReader(large)); !errors.As(err, &wireErr) || wireErr.Message() != guestwire.StdinClosed {
		t.Errorf("input for a closed stdin: got %v, want %s", err, guestwire.StdinClosed)
	}
}

// F29: a program that does not read blocks only the request. When the caller disconnects, the
// handler returns and the input stays open.
func TestF29UnreadBodyBlocksOnlyItsRequest(t *testing.T) {
	b := newTestService(t, nil)
	returned := make(chan struct{}, 1)
	b.http = hosttest.ServeUnix(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.service.Stdin(w, r)
		returned <- struct{}{}
	}))
	s := b.start(t, shell("sleep 1000"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sent := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- b.writeBody(ctx, t, s.pid, &signalling{Reader: bytes.NewReader(make([]byte, guestwire.MaxStdin)), all: sent})
	}()
	// The body is larger than the pipe, so the guest has read it and waits for the program.
	select {
	case <-sent:
	case <-hosttest.Late():
		t.Fatal("the guest did not read the whole body")
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("request after the caller has disconnected: got %v, want Canceled", err)
	}
	select {
	case <-returned:
	case <-hosttest.Late():
		t.Fatal("the handler did not return after the caller had disconnected")
	}
	if err := b.closeStdin(t, s); err != nil {
		t.Error(err)
	}
	if err := b.writeBody(t.Context(), t, s.pid, bytes.NewReader([]byte("x"))); connect.CodeOf(err) != connect.CodeInternal {
		t.Errorf("input after CloseStdin: got %v", err)
	}
}

// signalling is a body that closes all when it has been read.
type signalling struct {
	*bytes.Reader
	all  chan struct{}
	once sync.Once
}

func (s *signalling) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if s.Len() == 0 {
		s.once.Do(func() { close(s.all) })
	}
	return n, err
}

// WriteTo hides the method of the embedded reader, which would not call Read.
func (s *signalling) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{s})
}
