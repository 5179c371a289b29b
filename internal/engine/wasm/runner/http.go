package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/net/http/httpguts"
)

// httpModule is the name of the module with the functions for HTTP. It is that of an existing
// interface for WASI preview 1, whose clients for Rust and AssemblyScript work here unchanged.
const httpModule = "wasi_experimental_http"

// Limits of requests.
const (
	maxURL         = 8 << 10
	maxRequestBody = 16 << 20
	maxAnswerBody  = 1 << 30
	maxHandles     = 32
)

// errno is an error code of the interface.
type errno uint32

const (
	errnoSuccess errno = iota
	errnoInvalidHandle
	errnoMemoryNotFound
	errnoMemoryAccess
	errnoBufferTooSmall
	errnoHeaderNotFound
	errnoUTF8
	errnoDestination
	errnoMethod
	errnoEncoding
	errnoURL
	errnoRequest
	errnoRuntime
	errnoTooManySessions
)

// noNetwork is printed once if a module makes a request in a sandbox without a network, because the
// interface has codes and no messages.
const noNetwork = "crannog: this sandbox has no network; allow hosts with --allow HOST or a policy"

// httpHost has the answers that the module has not closed.
type httpHost struct {
	// client returns the transport, which is made for the first request. It is nil in a sandbox
	// without a network.
	client  func() *http.Transport
	warn    func()
	handles map[uint32]*answer
	next    uint32
}

// answer is an answer of which the module reads the body.
type answer struct {
	header http.Header
	body   io.ReadCloser
	left   int64
	cancel context.CancelFunc
}

func newHTTPHost(n *network) *httpHost {
	h := &httpHost{handles: map[uint32]*answer{}, warn: sync.OnceFunc(func() { fmt.Fprintln(os.Stderr, noNetwork) })}
	if n.socket != nil {
		h.client = sync.OnceValue(n.transport)
	}
	return h
}

// define makes the functions available to modules.
func (h *httpHost) define(ctx context.Context, runtime wazero.Runtime) error {
	b := runtime.NewHostModuleBuilder(httpModule)
	for name, f := range map[string]any{
		"req": func(ctx context.Context, m api.Module, url, urlLen, method, methodLen, headers, headersLen, body, bodyLen, status, handle uint32) uint32 {
			return uint32(h.request(ctx, m.Memory(), [4][2]uint32{{url, urlLen}, {method, methodLen}, {headers, headersLen}, {body, bodyLen}}, status, handle))
		},
		"close": func(_ context.Context, handle uint32) uint32 { return uint32(h.close(handle)) },
		"header_get": func(_ context.Context, m api.Module, handle, name, nameLen, value, valueLen, written uint32) uint32 {
			return uint32(h.headerGet(m.Memory(), handle, [2]uint32{name, nameLen}, [2]uint32{value, valueLen}, written))
		},
		"headers_get_all": func(_ context.Context, m api.Module, handle, value, valueLen, written uint32) uint32 {
			return uint32(h.headersGetAll(m.Memory(), handle, [2]uint32{value, valueLen}, written))
		},
		"body_read": func(_ context.Context, m api.Module, handle, to, toLen, written uint32) uint32 {
			return uint32(h.bodyRead(m.Memory(), handle, [2]uint32{to, toLen}, written))
		},
	} {
		b.NewFunctionBuilder().WithFunc(f).Export(name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

// request sends a request and stores its answer. The regions of memory are the URL, the method, the
// headers and the body.
func (h *httpHost) request(ctx context.Context, memory api.Memory, regions [4][2]uint32, status, handle uint32) errno {
	if memory == nil {
		return errnoMemoryNotFound
	}
	if h.client == nil {
		h.warn()
		return errnoDestination
	}
	if len(h.handles) >= maxHandles {
		return errnoTooManySessions
	}
	for i, most := range []struct {
		bytes uint32
		code  errno
	}{{maxURL, errnoURL}, {maxURL, errnoMethod}, {maxHeaders, errnoEncoding}, {maxRequestBody, errnoRequest}} {
		if regions[i][1] > most.bytes {
			return most.code
		}
	}
	var parts [4][]byte
	for i, region := range regions {
		part, ok := memory.Read(region[0], region[1])
		if !ok {
			return errnoMemoryAccess
		}
		parts[i] = bytes.Clone(part) // another thread of the module could change it
	}
	request, code := newRequest(parts)
	if code != errnoSuccess {
		return code
	}
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	got, err := h.client().RoundTrip(request.WithContext(ctx))
	if refused, ok := errors.AsType[*refusedTunnel](err); ok {
		got, err = refused.response(), nil
	}
	if err != nil {
		cancel()
		return errnoRequest
	}
	h.next++
	if !memory.WriteUint16Le(status, uint16(got.StatusCode)) || !memory.WriteUint32Le(handle, h.next) {
		_ = got.Body.Close() // the module does not get it
		cancel()
		return errnoMemoryAccess
	}
	h.handles[h.next] = &answer{got.Header, got.Body, maxAnswerBody, cancel}
	return errnoSuccess
}

// response returns the refusal as an answer, as programs get it for a URL without TLS.
func (r *refusedTunnel) response() *http.Response {
	header := r.header
	header.Del("Content-Length")
	body := io.NopCloser(strings.NewReader("crannog: " + header.Get("X-Crannog-Blocked") + "\n"))
	header.Set("Content-Type", "text/plain; charset=utf-8")
	return &http.Response{StatusCode: r.status, Header: header, Body: body}
}

// newRequest returns the request that a module describes.
func newRequest(parts [4][]byte) (*http.Request, errno) {
	u, err := url.Parse(string(parts[0]))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errnoURL
	}
	method := string(parts[1])
	if method == http.MethodConnect {
		return nil, errnoMethod // it is the gateway's own
	}
	request, err := http.NewRequest(method, u.String(), bytes.NewReader(parts[3])) //nolint:noctx // the caller sets one
	if err != nil {
		return nil, errnoMethod
	}
	for line := range strings.Lines(string(parts[2])) {
		name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, errnoEncoding
		}
		switch http.CanonicalHeaderKey(name) {
		case "Host":
			request.Host = value
		case "Content-Length", "Transfer-Encoding", "Connection", "Trailer":
			// They describe the connection, which is not the module's.
		default:
			request.Header.Add(name, value)
		}
	}
	return request, errnoSuccess
}

// close ends an exchange.
func (h *httpHost) close(handle uint32) errno {
	a := h.handles[handle]
	if a == nil {
		return errnoInvalidHandle
	}
	delete(h.handles, handle)
	_ = a.body.Close() // the rest of the body is not needed
	a.cancel()
	return errnoSuccess
}

// find returns the answer with a handle, to which a module with a memory refers.
func (h *httpHost) find(memory api.Memory, handle uint32) (*answer, errno) {
	a := h.handles[handle]
	switch {
	case a == nil:
		return nil, errnoInvalidHandle
	case memory == nil:
		return nil, errnoMemoryNotFound
	}
	return a, errnoSuccess
}

// write writes text to a region, and its length to written.
func write(memory api.Memory, to [2]uint32, written uint32, text []byte) errno {
	if len(text) > int(to[1]) {
		return errnoBufferTooSmall
	}
	if !memory.Write(to[0], text) || !memory.WriteUint32Le(written, uint32(len(text))) {
		return errnoMemoryAccess
	}
	return errnoSuccess
}

// headerGet writes the first value of a header.
func (h *httpHost) headerGet(memory api.Memory, handle uint32, name, to [2]uint32, written uint32) errno {
	a, code := h.find(memory, handle)
	if code != errnoSuccess {
		return code
	}
	if name[1] > maxHeaders {
		return errnoHeaderNotFound
	}
	key, ok := memory.Read(name[0], name[1])
	if !ok {
		return errnoMemoryAccess
	}
	values := a.header.Values(string(key))
	if len(values) == 0 {
		return errnoHeaderNotFound
	}
	return write(memory, to, written, []byte(values[0]))
}

// headersGetAll writes all headers as lines of the form name:value.
func (h *httpHost) headersGetAll(memory api.Memory, handle uint32, to [2]uint32, written uint32) errno {
	a, code := h.find(memory, handle)
	if code != errnoSuccess {
		return code
	}
	var lines []string
	for name, values := range a.header {
		for _, value := range values {
			lines = append(lines, name+":"+value+"\n")
		}
	}
	slices.Sort(lines)
	return write(memory, to, written, []byte(strings.Join(lines, "")))
}

// bodyRead reads a part of the body. A part of no bytes is its end.
func (h *httpHost) bodyRead(memory api.Memory, handle uint32, to [2]uint32, written uint32) errno {
	a, code := h.find(memory, handle)
	if code != errnoSuccess {
		return code
	}
	buffer, ok := memory.Read(to[0], to[1])
	if !ok {
		return errnoMemoryAccess
	}
	if len(buffer) == 0 {
		return write(memory, to, written, nil)
	}
	if a.left <= 0 {
		return errnoRequest
	}
	n, err := 0, error(nil)
	for n == 0 && err == nil { // a read may return nothing before the end
		n, err = a.body.Read(buffer[:min(int64(len(buffer)), a.left)])
	}
	a.left -= int64(n)
	if n == 0 && err != nil && !errors.Is(err, io.EOF) {
		return errnoRequest
	}
	if !memory.WriteUint32Le(written, uint32(n)) {
		return errnoMemoryAccess
	}
	return errnoSuccess
}
