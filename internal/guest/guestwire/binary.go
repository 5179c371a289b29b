package guestwire

import "net/http"

// BinaryHeader, with the value 1, asks for the output of a command as data for a program: values of
// secrets are replaced by as many bytes, as in files, and text that only looks like a token stays.
// The server reads it; otherwise a redacted protocol would lose its framing.
const BinaryHeader = "Crannog-Output-Binary"

// SetBinary sets the header if binary is true.
func SetBinary(h http.Header, binary bool) {
	if binary {
		h.Set(BinaryHeader, "1")
	}
}

// Binary reports whether the header is set.
func Binary(h http.Header) bool { return h.Get(BinaryHeader) == "1" }
