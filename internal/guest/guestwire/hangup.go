package guestwire

import "net/http"

// HangupHeader asks for a command that is hung up when its stream ends before it. Without it the
// command continues, as on E2B.
const HangupHeader = "Crannog-Hangup"

// SetHangup sets the header if hangup is true.
func SetHangup(h http.Header, hangup bool) {
	if hangup {
		h.Set(HangupHeader, "1")
	}
}

// Hangup reports whether the header is set.
func Hangup(h http.Header) bool { return h.Get(HangupHeader) == "1" }
