// Package httpstatus owns the mapping from kinds of faults to HTTP statuses. All APIs of the server
// use it. It is separate from package fault because programs without HTTP import that one too.
package httpstatus

import (
	"net/http"

	"github.com/crannog/crannog/internal/fault"
)

// Canceled is the status in logs for a client that disconnected. No client receives it.
const Canceled = 499

// BodyTooLarge is the code of a fault whose status is always 413, regardless of its kind.
const BodyTooLarge = "body_too_large"

// table maps kinds to statuses. SDKs choose their error class by the status.
var table = map[fault.Kind]int{
	fault.Internal:        http.StatusInternalServerError,
	fault.Invalid:         http.StatusBadRequest,
	fault.Unauthenticated: http.StatusUnauthorized,
	fault.Denied:          http.StatusForbidden,
	fault.NotFound:        http.StatusNotFound,
	fault.Exists:          http.StatusConflict,
	fault.Conflict:        http.StatusConflict,
	fault.Exhausted:       http.StatusTooManyRequests,
	fault.Unsupported:     http.StatusNotImplemented,
	fault.Unavailable:     http.StatusServiceUnavailable,
	fault.Timeout:         http.StatusGatewayTimeout,
	fault.Canceled:        Canceled,
}

// Of returns the status for an error: 500 for an unclassified error and for an unknown kind.
func Of(err error) int {
	if fault.CodeOf(err) == BodyTooLarge {
		return http.StatusRequestEntityTooLarge
	}
	if status, ok := table[fault.KindOf(err)]; ok {
		return status
	}
	return http.StatusInternalServerError
}
