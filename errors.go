package crannog

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
)

// Error is an error of the server or of a sandbox. Use errors.Is with the variables below for its
// kind, and Code for the precise reason.
type Error struct {
	Kind    string // kind, such as "not_found"
	Code    string // stable machine name
	Message string
	Hint    string // next step, or ""
	// RetryAfter is the time to wait before the next attempt; zero if unknown.
	RetryAfter time.Duration
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Is makes errors.Is work with the kinds below and with those of package fs.
func (e *Error) Is(target error) bool {
	if k, ok := target.(kind); ok {
		return string(k) == e.Kind
	}
	switch target {
	case fs.ErrNotExist:
		return e.Kind == string(fault.NotFound)
	case fs.ErrExist:
		return e.Kind == string(fault.Exists)
	case fs.ErrPermission:
		return e.Kind == string(fault.Denied)
	}
	return false
}

type kind string

func (k kind) Error() string { return "crannog: " + string(k) }

// Kinds of errors, for errors.Is.
var (
	ErrInvalid         error = kind(fault.Invalid)         // the request is invalid and never succeeds as it is
	ErrUnauthenticated error = kind(fault.Unauthenticated) // no key, or a wrong one
	ErrDenied          error = kind(fault.Denied)          // known, but not allowed
	ErrNotFound        error = kind(fault.NotFound)        // does not exist, or belongs to another caller
	ErrExists          error = kind(fault.Exists)          // the name is taken
	ErrConflict        error = kind(fault.Conflict)        // not possible in its present state
	ErrExhausted       error = kind(fault.Exhausted)       // a limit is reached
	ErrUnsupported     error = kind(fault.Unsupported)     // not supported by this server
	ErrUnavailable     error = kind(fault.Unavailable)     // not reachable, or not now
	ErrTimeout         error = kind(fault.Timeout)         // a deadline passed
	ErrInternal        error = kind(fault.Internal)        // an internal error of the server
)

// Code returns the stable code of an error, "" if it has none.
func Code(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// fromFault converts a fault to an Error.
func fromFault(err error) error {
	if err == nil {
		return nil
	}
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	text := f.Text
	if f.Kind == fault.Unavailable || f.Kind == fault.Internal {
		text = f.Error()
	}
	return &Error{Kind: string(f.Kind), Code: fault.CodeOf(f), Message: text, Hint: f.Hint, RetryAfter: f.After}
}

// maxErrorBody bounds an error response, which may come from another program, such as a proxy.
const maxErrorBody = 64 << 10

// responseError parses an error response of the API, or of the data plane, whose code is the HTTP
// status.
func responseError(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return unreachableError(err)
	}
	var p api.Problem
	if json.Unmarshal(body, &p) == nil && p.Code != "" && p.Kind != "" {
		return &Error{Kind: p.Kind, Code: p.Code, Message: p.Detail, Hint: p.Hint, RetryAfter: time.Duration(p.RetryAfterSeconds) * time.Second}
	}
	var data struct {
		Message string `json:"message"`
	}
	text := resp.Status
	notJSON := json.Unmarshal(body, &data) != nil
	plain := strings.TrimSpace(string(body))
	switch {
	case data.Message != "":
		text = data.Message
	case notJSON && plain != "" && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain"):
		text = plain // the code interpreter's errors
	}
	k := kindOfStatus(resp.StatusCode)
	return &Error{Kind: string(k), Code: string(k), Message: text}
}

func kindOfStatus(status int) fault.Kind {
	switch status {
	case http.StatusBadRequest, http.StatusNotAcceptable, http.StatusMethodNotAllowed:
		return fault.Invalid
	case http.StatusUnauthorized:
		return fault.Unauthenticated
	case http.StatusForbidden:
		return fault.Denied
	case http.StatusNotFound:
		return fault.NotFound
	case http.StatusConflict:
		return fault.Conflict
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusInsufficientStorage:
		return fault.Exhausted
	case http.StatusNotImplemented:
		return fault.Unsupported
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return fault.Unavailable
	case http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return fault.Timeout
	}
	return fault.Internal
}

// unreachableError returns the error for a request without a response. The cause stays in the
// chain, so that errors.Is finds context.Canceled.
func unreachableError(cause error) error {
	return errors.Join(&Error{
		Kind: string(fault.Unavailable), Code: "server_unreachable", Message: "the server cannot be reached",
	}, cause)
}
