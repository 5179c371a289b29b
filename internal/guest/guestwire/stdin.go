package guestwire

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"
)

// StdinPath is where a guest accepts bulk input for a program: as the body of a request, whose
// query has the program's number. In a call, both sides hold all of a piece and copy it several
// times. A guest with this path announces it by StdinHeader in its answer to a start. Guests of
// earlier versions do not have it.
const (
	StdinPath   = "/stdin"
	StdinHeader = "Crannog-Stdin"
	StdinBody   = "body" // its value
)

// MaxStdin limits one such body, to what proxies before a server usually accept.
const MaxStdin = 1 << 20

// stdinRefusal is a guest's reason for not accepting input.
type stdinRefusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// RefuseStdin answers a request whose input was not accepted. It reads the rest of the body first:
// closing a connection with unread data can lose the answer, and input that the program did not
// want would count as lost.
func RefuseStdin(w http.ResponseWriter, r *http.Request, err error) {
	_, _ = io.CopyN(io.Discard, r.Body, MaxStdin) // what is wrong with it is err
	said := stdinRefusal{Code: connect.CodeOf(err).String(), Message: err.Error()}
	if e, ok := errors.AsType[*connect.Error](err); ok {
		said.Message = e.Message()
	}
	status := http.StatusBadRequest
	if connect.CodeOf(err) == connect.CodeNotFound {
		status = http.StatusNotFound
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(said) // the only error is a client that is gone
}

// StdinError returns the reason why input was not accepted, or nil. An answer that is not a guest's
// own refusal gets the code that a call's would have.
func StdinError(res *http.Response) error {
	if res.StatusCode == http.StatusNoContent {
		return nil
	}
	var said stdinRefusal
	var code connect.Code
	err := json.NewDecoder(io.LimitReader(res.Body, maxRefusal)).Decode(&said)
	if err == nil && code.UnmarshalText([]byte(said.Code)) == nil {
		return connect.NewWireError(code, errors.New(said.Message))
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
