package interpreter

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/crannog/crannog/internal/fault"
)

// statuses maps what went wrong to HTTP. Clients read 404 as a missing
// context and 502 as a sandbox that is gone, so nothing else may use those.
var statuses = map[fault.Kind]int{
	fault.Internal:        http.StatusInternalServerError,
	fault.Invalid:         http.StatusBadRequest,
	fault.Unauthenticated: http.StatusUnauthorized,
	fault.Denied:          http.StatusForbidden,
	fault.NotFound:        http.StatusNotFound,
	fault.Exists:          http.StatusConflict,
	fault.Conflict:        http.StatusConflict,
	fault.Exhausted:       http.StatusTooManyRequests,
	fault.Unsupported:     http.StatusBadRequest,
	fault.Unavailable:     http.StatusInternalServerError,
	fault.Timeout:         http.StatusInternalServerError,
	fault.Canceled:        499, // the client has left
}

// refuse answers with an error as text, which is what clients of this service
// show.
func refuse(w http.ResponseWriter, err error) {
	status := statuses[fault.KindOf(err)]
	if fault.CodeOf(err) == "body_too_large" {
		status = http.StatusRequestEntityTooLarge
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	// A write error means that the client has left.
	_, _ = io.WriteString(w, fault.PublicText(err))
}

// reply answers with JSON.
func reply(w http.ResponseWriter, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		panic("encode reply: " + err.Error()) // only strings are in it
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // the client may be gone
}
