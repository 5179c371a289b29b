package e2b

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/fault/httpstatus"
)

const codeNotSupported = "not_supported"

var errNoCaller = errors.New("a request without a caller reached a handler")

// failure is the body of every error. Clients recognise "not found" by the number in it, not by the
// HTTP status.
type failure struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code,omitempty"`
}

// fail answers with an error.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	body := a.failureOf(r, err)
	if after := fault.RetryAfterSeconds(err); after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	writeJSON(w, body.Code, body)
}

// WriteFailure answers a request that was refused before it reached a route.
func WriteFailure(w http.ResponseWriter, err *fault.Error) {
	if after := fault.RetryAfterSeconds(err); after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	body := failure{Code: httpstatus.Of(err), Message: err.Text, ErrorCode: err.Code}
	if err.Hint != "" {
		body.Message += "; " + err.Hint
	}
	writeJSON(w, body.Code, body)
}

// failureOf returns the body for an error. It logs internal errors.
func (a *api) failureOf(r *http.Request, err error) failure {
	code := httpstatus.Of(err)
	if code == http.StatusInternalServerError {
		a.Log.Error("e2b call failed", "method", r.Method, "route", r.Pattern, "err", err)
	}
	message := fault.PublicText(err)
	if hint := fault.HintOf(err); hint != "" && code != http.StatusInternalServerError {
		message += "; " + hint
	}
	return failure{Code: code, Message: message, ErrorCode: fault.CodeOf(err)}
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	encoded, err := json.Marshal(body)
	if err != nil { // our own type always marshals
		code, encoded = http.StatusInternalServerError, []byte(`{"code":500,"message":"internal error","error_code":"internal"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(encoded) // an error means that the client has left
}
