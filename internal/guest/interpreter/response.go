package interpreter

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/fault/httpstatus"
)

// statusOf returns the HTTP status for an error. For clients of this service 404 means that the
// context is missing, and 502 that the sandbox is gone. Apart from that they distinguish only
// errors of the request from errors of the server. So all other kinds become 400 or 500.
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

// writeError answers with an error as text, which clients display.
func writeError(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(statusOf(err))
	// A write error means that the client has disconnected.
	_, _ = io.WriteString(w, fault.PublicText(err))
}

// writeJSON answers with JSON.
func writeJSON(w http.ResponseWriter, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		panic("encode reply: " + err.Error()) // bodies contain only strings
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // an error means that the client has disconnected
}
