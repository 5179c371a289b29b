package console

import (
	"bufio"
	"mime"
	"net"
	"net/http"
	"strings"
)

// inertWriter passes on only content that a browser displays as data. It sends other content as a
// download. Otherwise a page, a picture with scripts or a style sheet that a sandbox wrote would
// have the console's origin.
type inertWriter struct {
	http.ResponseWriter
	started bool
}

const (
	bytesType = "application/octet-stream"
	partsType = "multipart/mixed" // a file with its signature
)

// inertType reports whether browsers show content of a media type as data.
func inertType(kind string) bool {
	switch kind {
	case "application/json", "application/problem+json", "application/x-ndjson", "application/jsonl",
		"text/event-stream", bytesType, partsType, "application/x-tar", "application/gzip", "application/x-asciicast", "application/openapi+json", "application/schema+json":
		return true
	}
	return false
}

// begin completes the headers before the first byte of a response is sent.
func (w *inertWriter) begin(status int) {
	if w.started || status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	w.started = true
	if status == http.StatusSwitchingProtocols || status == http.StatusNoContent || status == http.StatusNotModified {
		return
	}
	h := w.Header()
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || !inertType(kind) {
		kind = bytesType
		h.Set("Content-Type", kind)
	}
	if (kind == bytesType || kind == partsType) && !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") {
		h.Set("Content-Disposition", "attachment")
	}
	h.Set("X-Content-Type-Options", "nosniff")
}

// WriteHeader implements http.ResponseWriter.
func (w *inertWriter) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *inertWriter) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher, for streams.
func (w *inertWriter) Flush() {
	w.begin(http.StatusOK)
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker, for terminals.
func (w *inertWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *inertWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
