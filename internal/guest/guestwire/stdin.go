package guestwire

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"
)

// StdinPath accepts bulk input for a program as the body of a request. The query has the program's
// PID. In a call, both sides would hold the input in memory and copy it several times. A guest with
// this path announces it by StdinHeader in its answer to a start. Guests of earlier versions lack
// it.
const (
	StdinPath   = "/stdin"
	StdinHeader = "Crannog-Stdin"
	StdinBody   = "body" // value of StdinHeader
)

// MaxStdin limits the body to what reverse proxies usually accept.
const MaxStdin = 1 << 20

// stdinError is a guest's reason for rejecting input.
type stdinError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// RejectStdin answers a request whose input was not accepted. It first reads the rest of the body,
// because closing a connection with unread data can lose the answer.
func RejectStdin(w http.ResponseWriter, r *http.Request, err error) {
	_, _ = io.CopyN(io.Discard, r.Body, MaxStdin) // an error of the body does not matter
	answer := stdinError{Code: connect.CodeOf(err).String(), Message: err.Error()}
	if e, ok := errors.AsType[*connect.Error](err); ok {
		answer.Message = e.Message()
	}
	status := http.StatusBadRequest
	if connect.CodeOf(err) == connect.CodeNotFound {
		status = http.StatusNotFound
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // fails only if the client has disconnected
}

// StdinError returns the reason why input was not accepted, or nil. For an answer that is not from
// the guest, the error has the code that a call would return.
func StdinError(res *http.Response) error {
	if res.StatusCode == http.StatusNoContent {
		return nil
	}
	var answer stdinError
	var code connect.Code
	err := json.NewDecoder(io.LimitReader(res.Body, maxErrorBytes)).Decode(&answer)
	if err == nil && code.UnmarshalText([]byte(answer.Code)) == nil {
		return connect.NewWireError(code, errors.New(answer.Message))
	}
	switch res.StatusCode {
	case http.StatusUnauthorized:
		code = connect.CodeUnauthenticated
	case http.StatusForbidden:
		code = connect.CodePermissionDenied
	case http.StatusNotFound:
		code = connect.CodeUnimplemented
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		code = connect.CodeUnavailable
	default:
		code = connect.CodeUnknown
	}
	return connect.NewError(code, errors.New(res.Status))
}
