package guestwire

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
)

// F29: for rejected input, a body gets the same errors as a call.
func TestF29RejectedInputErrors(t *testing.T) {
	for _, err := range []*connect.Error{
		connect.NewError(connect.CodeInternal, errors.New(StdinClosed)),
		connect.NewError(connect.CodeNotFound, errors.New("no process 7")),
	} {
		w := httptest.NewRecorder()
		body := strings.NewReader(strings.Repeat("x", MaxStdin))
		RejectStdin(w, httptest.NewRequest(http.MethodPost, StdinPath, body), err)
		var wireErr *connect.Error
		if got := StdinError(w.Result()); !errors.As(got, &wireErr) || !connect.IsWireError(got) || wireErr.Code() != err.Code() || wireErr.Message() != err.Message() {
			t.Errorf("the rejection %v became %v", err, got)
		}
		if body.Len() > 0 {
			t.Errorf("%v: %d bytes of the body were not read", err, body.Len())
		}
	}
	for status, code := range map[int]connect.Code{
		http.StatusOK: connect.CodeUnknown, http.StatusUnauthorized: connect.CodeUnauthenticated, http.StatusForbidden: connect.CodePermissionDenied,
		http.StatusNotFound: connect.CodeUnimplemented, http.StatusBadGateway: connect.CodeUnavailable, http.StatusTeapot: connect.CodeUnknown,
	} {
		// The first answer is of a proxy, with a number as its code. The second is of a hostile
		// guest, and has no end.
		for _, body := range []io.Reader{strings.NewReader(`{"code":404,"message":"x"}`), io.MultiReader(strings.NewReader(`{"code":"`), endless{})} {
			err := StdinError(&http.Response{StatusCode: status, Status: http.StatusText(status), Body: io.NopCloser(body)})
			if connect.CodeOf(err) != code || connect.IsWireError(err) {
				t.Errorf("answer with status %d: got %v, want the code %v", status, err, code)
			}
		}
	}
	if err := StdinError(&http.Response{StatusCode: http.StatusNoContent}); err != nil {
		t.Error(err)
	}
}

// endless is a reader without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
