package interpreter

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/fault/httpstatus"
)

// statusOf returns the HTTP status for an error. Clients of this service read 404 as a missing
// context and 502 as a sandbox that is gone, and distinguish only the request's fault from the
// server's otherwise. So kinds with a status of their own elsewhere are 400 or 500 here.
func statusOf(err error) int {
	switch fault.KindOf(err) {
	case fault.Unsupported:
		return http.StatusBadRequest
	case fault.Unavailable, fault.Timeout:
		return http.StatusInternalServerError
	default:
		return httpstatus.Of(err)
	}
}

// refuse answers with an error as text, which clients of this service show.
func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(statusOf(err))
	// A write error means that the client has left.
	_, _ = io.WriteString(w, fault.PublicText(err))
}

// reply answers with JSON.
func reply(w http.ResponseWriter, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		panic("encode reply: " + err.Error()) // it contains only strings
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // the client may be gone
}
