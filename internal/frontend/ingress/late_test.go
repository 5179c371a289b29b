package ingress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// P11: once the service reports that a sandbox is ending, no client receives data from it, even
// before the proxy's own loops have noticed.
func TestNothingIsPassedOnAfterTheSandboxWent(t *testing.T) {
	gone := make(chan struct{})
	b := &backend{gone: gone, ctx: t.Context()}
	rec := httptest.NewRecorder()
	w := &hardCloser{ResponseWriter: rec, back: b}
	near, far := net.Pipe()
	defer near.Close()
	go io.Copy(io.Discard, far)
	conn := &hardConn{Conn: near, back: b}
	req := httptest.NewRequest(http.MethodPost, "/", nil)
	req = req.WithContext(context.WithValue(t.Context(), tripKey{}, &trip{target: target{port: 3000}, back: b}))
	answer := &http.Response{Request: req, StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody}
	write := func() (panicked any) {
		defer func() { panicked = recover() }()
		_, _ = w.Write([]byte("said"))
		return nil
	}

	if err := answered(answer); err != nil || write() != nil || rec.Body.String() != "said" {
		t.Fatalf("control: %v, %q", err, rec.Body)
	}
	if _, err := conn.Write([]byte("said")); err != nil {
		t.Fatalf("control: %v", err)
	}
	close(gone)
	if err := answered(answer); !errors.Is(err, errGone) {
		t.Errorf("an answer that came later is passed on: %v", err)
	}
	if err, _ := write().(error); !errors.Is(err, http.ErrAbortHandler) || rec.Body.String() != "said" {
		t.Errorf("what came later is passed on: %q", rec.Body)
	}
	if _, err := conn.Write([]byte("late")); !errors.Is(err, errGone) {
		t.Errorf("a connection that was taken over passes on what came later: %v", err)
	}
}
