// Package wasihttp makes HTTP requests from Go programs that are built for WebAssembly (GOOS=wasip1
// GOARCH=wasm) and run in sandboxes of Crannog's engine wasm, which have no sockets. Each request
// goes through the sandbox's egress gateway: the policy decides about it, secrets are injected on
// the way, and it is recorded.
//
//	client := &http.Client{Transport: wasihttp.Transport{}}
//	answer, err := client.Get("https://api.example.com/")
//
// A request that the policy refuses gets an answer with the status 403 and the reason in its body
// and in the header X-Crannog-Blocked, as from every other sandbox. The functions below this package
// are those of the module wasi_experimental_http, for which there are clients in other languages.
//
// A request stops the whole program until the headers of its answer arrive, because WASI preview 1
// has no threads, and its body is sent as a whole. Answers are read in parts. On other systems than
// WASI, all requests fail with ErrUnsupported.
package wasihttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// Error is a code of the module wasi_experimental_http.
type Error uint32

// Codes of errors.
const (
	ErrInvalidHandle Error = iota + 1
	ErrMemoryNotFound
	ErrMemoryAccess
	ErrBufferTooSmall
	ErrHeaderNotFound
	ErrUTF8
	ErrDestinationNotAllowed // the sandbox has no network
	ErrInvalidMethod
	ErrInvalidEncoding
	ErrInvalidURL
	ErrRequest // the request failed, or its body is larger than 16 MiB
	ErrRuntime
	ErrTooManySessions // the bodies of 32 answers are not closed
)

var texts = map[Error]string{
	ErrInvalidHandle: "the answer is closed", ErrMemoryNotFound: "the program exports no memory", ErrMemoryAccess: "an address is outside of the memory",
	ErrBufferTooSmall: "the headers of the answer are too large", ErrHeaderNotFound: "the answer has no such header", ErrUTF8: "a text is not in UTF-8",
	ErrDestinationNotAllowed: "the sandbox has no network; allow hosts with --allow HOST or a policy", ErrInvalidMethod: "the method is invalid",
	ErrInvalidEncoding: "the headers are invalid, or larger than 64 KiB", ErrInvalidURL: "the URL is invalid, not of HTTP, or longer than 8 KiB",
	ErrRequest: "the request failed, or a body is too large", ErrRuntime: "the runtime failed", ErrTooManySessions: "the bodies of too many answers are not closed",
}

// Error implements error.
func (e Error) Error() string {
	if text := texts[e]; text != "" {
		return "wasihttp: " + text
	}
	return fmt.Sprintf("wasihttp: error %d", uint32(e))
}

// ErrUnsupported is returned for each request of a program that does not run on WASI.
var ErrUnsupported = errors.New("wasihttp: this program was not built for wasip1")

// Transport is an http.RoundTripper. The zero value is ready for use.
type Transport struct{}

// maxHeaders is the size of the headers of the largest answer, with their separators.
const maxHeaders = 128 << 10

// RoundTrip implements http.RoundTripper.
func (Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var content []byte
	if r.Body != nil {
		var err error
		if content, err = io.ReadAll(r.Body); err != nil {
			return nil, errors.Join(err, r.Body.Close())
		}
		if err := r.Body.Close(); err != nil {
			return nil, err
		}
	}
	if err := context.Cause(r.Context()); err != nil {
		return nil, err
	}
	status, handle, err := send(r.URL.String(), r.Method, headerLines(r), content)
	if err != nil {
		return nil, err
	}
	answer := &body{handle: handle, ctx: r.Context()}
	header, err := readHeaders(handle)
	if err != nil {
		return nil, errors.Join(err, answer.Close())
	}
	length := int64(-1)
	if _, err := fmt.Sscan(header.Get("Content-Length"), &length); err != nil || length < 0 {
		length = -1
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: answer, ContentLength: length, Request: r,
	}, nil
}

// headerLines returns the headers of a request as lines.
func headerLines(r *http.Request) string {
	var lines []string
	for name, values := range r.Header {
		for _, value := range values {
			lines = append(lines, name+":"+value+"\n")
		}
	}
	if r.Host != "" && r.Host != r.URL.Host {
		lines = append(lines, "Host:"+r.Host+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// readHeaders reads the headers of an answer.
func readHeaders(handle uint32) (http.Header, error) {
	buffer := make([]byte, maxHeaders)
	n, err := headers(handle, buffer)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for line := range bytes.Lines(buffer[:n]) {
		if name, value, ok := strings.Cut(strings.TrimRight(string(line), "\r\n"), ":"); ok {
			header.Add(textproto.TrimString(name), textproto.TrimString(value))
		}
	}
	return header, nil
}

// body is the body of an answer.
type body struct {
	handle uint32
	ctx    context.Context //nolint:containedctx // it is the request's
	closed bool
	err    error
}

// Read implements io.Reader.
func (b *body) Read(to []byte) (int, error) {
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if b.err == nil {
		b.err = context.Cause(b.ctx)
	}
	if b.err != nil || len(to) == 0 {
		return 0, b.err
	}
	n, err := read(b.handle, to)
	switch {
	case err != nil:
		b.err = err
	case n == 0:
		b.err = io.EOF
	}
	return n, b.err
}

// Close implements io.Closer.
func (b *body) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	return closeHandle(b.handle)
}
