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

// TestNoOutputAfterSandboxEnd checks that no client receives data once the service reports that the
// sandbox is ending, even before the proxy's own loops have noticed (P11).
func TestNoOutputAfterSandboxEnd(t *testing.T) {
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
		_, _ = w.Write([]byte("text"))
		return nil
	}

	if err := modifyResponse(answer); err != nil || write() != nil || rec.Body.String() != "text" {
		t.Fatalf("control: %v, %q", err, rec.Body)
	}
	if _, err := conn.Write([]byte("text")); err != nil {
		t.Fatalf("control: %v", err)
	}
	close(gone)
	if err := modifyResponse(answer); !errors.Is(err, errGone) {
		t.Errorf("answer after the end: got error %v, want errGone", err)
	}
	if err, _ := write().(error); !errors.Is(err, http.ErrAbortHandler) || rec.Body.String() != "text" {
		t.Errorf("the client got output after the end: %q", rec.Body)
	}
	if _, err := conn.Write([]byte("late")); !errors.Is(err, errGone) {
		t.Errorf("hijacked connection after the end: got error %v, want errGone", err)
	}
}
