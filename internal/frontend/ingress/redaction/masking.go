// Package redaction redacts a sandbox's answers in each framing: events of processes, lines of the
// interpreter, bodies, headers, and upgraded connections. The redactor determines the values to
// redact.
package redaction

import (
	"io"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/copytree"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/guestwire"
	"github.com/crannog/crannog/internal/sandbox"
)

// CodeUnreadable is the fault code of an answer that cannot be redacted.
const CodeUnreadable = "answer_not_maskable"

// Request changes a request so that its answer can be redacted: complete, and in no encoding that
// hides text. A server may ignore the client's ranges and encodings, so removing them is allowed.
func Request(h http.Header, port int, m *sandbox.Redactor) {
	if m.Text() != nil && port == guestboot.Port {
		h.Del("Connect-Accept-Encoding")
		h.Del("Grpc-Accept-Encoding")
	}
	if m.Bytes() == nil {
		return
	}
	h.Set("Accept-Encoding", "identity")
	// A range may begin in the middle of a value.
	h.Del("Range")
	h.Del("If-Range")
	// Text in a compressed message cannot be found.
	h.Del("Sec-Websocket-Extensions")
}

// Answer redacts an answer from a port of a sandbox. After an error the answer must not be passed
// on. If the body turns out to have another format than expected, reading it fails.
func Answer(res *http.Response, port int, m *sandbox.Redactor) error {
	if m.Text() == nil && m.Bytes() == nil {
		return nil
	}
	Header(res.Header, m)
	if res.StatusCode == http.StatusSwitchingProtocols {
		return redactUpgraded(res, m)
	}
	if res.Body == nil || res.Body == http.NoBody || res.ContentLength == 0 || res.Request.Method == http.MethodHead {
		return nil
	}
	form := formOf(res, port)
	if (form == raw || form == frames || form == copies) && m.Bytes() == nil {
		return nil
	}
	source, err := decodeBody(res)
	if err != nil {
		return err
	}
	var masked io.Reader
	switch form {
	case eventsJSON, eventsProto:
		redactor := m.Text
		if guestwire.Binary(res.Request.Header) {
			redactor = m.Bytes
		}
		masked = newEvents(source, form == eventsJSON, redactor)
	case lines:
		masked = newLines(source, m)
	case frames:
		masked = &frameReader{source: source, redactor: m.Bytes}
	case copies:
		masked = newCopies(source, m.Bytes)
	case raw:
		masked = &rawReader{source: source, redactor: m.Bytes}
	}
	if form == eventsJSON || form == eventsProto || form == lines {
		res.Header.Del("Content-Length") // placeholders have other lengths than values
		res.ContentLength = -1
	}
	res.Body = body{masked, source}
	return nil
}

// body reads redacted bytes and closes their source.
type body struct {
	io.Reader
	io.Closer
}

// Header redacts names and values of headers or trailers.
func Header(h http.Header, m *sandbox.Redactor) {
	r := m.Bytes()
	if r == nil {
		return
	}
	for name, values := range h {
		for i := range values {
			values[i] = r.String(values[i])
		}
		switch clean := r.String(name); {
		case clean != name:
			delete(h, name)
			h[clean] = append(h[clean], values...)
		case r.InName(name):
			delete(h, name) // in another case, as intermediaries may write names
		}
	}
}

// form is the format of an answer.
type form int

const (
	raw         form = iota
	frames           // length-prefixed messages
	eventsJSON       // output of a process, in messages
	eventsProto      // the same in the binary codec
	lines            // JSON objects of the interpreter
	copies           // copied files and directories
)

// formOf uses the same criteria as clients: the path and the type. If a sandbox gives an answer
// another type, it is redacted as bytes, and the sandbox's own client cannot read it.
func formOf(res *http.Response, port int) form {
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil {
		return raw
	}
	switch port {
	case guestboot.Port:
		if kind == copytree.ContentType {
			return copies
		}
		codec, ok := framed(kind)
		if !ok {
			return raw
		}
		switch path.Clean(res.Request.URL.Path) {
		case "/process.Process/Start", "/process.Process/Connect":
			return codec
		}
		return frames
	case guestboot.InterpreterPort:
		if kind == "application/x-ndjson" {
			return lines
		}
	}
	return raw
}

// framed reports whether a type is one of the guest's protocols, which use the same framing.
func framed(kind string) (form, bool) {
	for _, protocol := range []string{"application/connect", "application/grpc-web", "application/grpc"} {
		codec, ok := strings.CutPrefix(kind, protocol)
		switch {
		case !ok:
		case codec == "+json":
			return eventsJSON, true
		case codec == "+proto", codec == "" && protocol != "application/connect":
			return eventsProto, true
		}
	}
	return raw, false
}

func unreadable(text string) error {
	return fault.New(fault.Unavailable, CodeUnreadable, "the sandbox's answer "+text+", so secrets in it could not be redacted")
}

// Transport redacts all answers of one port of a sandbox.
func Transport(base http.RoundTripper, port int, m *sandbox.Redactor) http.RoundTripper {
	if m.Text() == nil && m.Bytes() == nil {
		return base
	}
	return transport{base, port, m}
}

type transport struct {
	base http.RoundTripper
	port int
	mask *sandbox.Redactor
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	Request(r.Header, t.port, t.mask)
	res, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Request = r
	if err := Answer(res, t.port, t.mask); err != nil {
		_ = res.Body.Close() // the error says more
		return nil, err
	}
	return res, nil
}
