package guestwire

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"
)

// StdinPath is where a guest takes much input for a program: as the body of a
// request, whose query names the program by its number. In a call all of a piece is
// held and copied several times on both sides. A guest that has the path says so by
// StdinHeader in its answer to a start. Guests of earlier versions do not.
const (
	StdinPath   = "/stdin"
	StdinHeader = "Crannog-Stdin"
	StdinBody   = "body" // its value
)

// MaxStdin bounds one such body. It is what proxies before a server mostly take.
const MaxStdin = 1 << 20

// stdinRefusal is how a guest says why it did not take input.
type stdinRefusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// RefuseStdin answers a request that was not taken. The rest of its body is read
// first: a connection that is closed with something to read on it can lose the
// answer, and input that the program did not want would pass for input that was lost.
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

// StdinError returns why an answer does not say that input was taken, or nil. What is
// not a guest's own refusal has the code that a call's would have.
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
