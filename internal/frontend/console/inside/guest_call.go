package inside

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/fault/httpstatus"
	"github.com/crannog/crannog/internal/frontend/ingress"
	"github.com/crannog/crannog/internal/guest/client"
	"github.com/crannog/crannog/internal/guest/gen/filesystempb/filesystempbconnect"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/guestwire"
)

const (
	// baseURL is the URL for requests into sandboxes; the dialer ignores its host.
	baseURL = "http://localhost"
	// idleTimeout is how long an unused in-memory connection stays open.
	idleTimeout = 30 * time.Second
	// answerTimeout bounds the guest's answer to a request about files. workTimeout bounds moving
	// or removing files, of which there may be many. Without these limits, a guest that an attacker
	// controls could block requests for ever, and a browser opens so few connections that the whole
	// console would hang.
	answerTimeout = 30 * time.Second
	workTimeout   = 10 * time.Minute
)

// guestConn is a connection to the guest of a sandbox, for one caller.
type guestConn struct {
	visit
	client *http.Client
	close  func()
}

// connect returns a connection whose answers must begin within a time. Zero means no limit, for
// calls that answer only when they have finished.
func (x *Inside) connect(v visit, answerWithin time.Duration) guestConn {
	caller := v.caller.Principal()
	t := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return x.deps.Dial(ctx, caller) },
		DisableCompression: true, IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: 4, ResponseHeaderTimeout: answerWithin,
	}
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return guestConn{v, &http.Client{Transport: t, CheckRedirect: noRedirect}, t.CloseIdleConnections}
}

// connectWithin is like connect, but d bounds the time until the whole answer has arrived.
func (x *Inside) connectWithin(r *http.Request, v visit, d time.Duration) (context.Context, guestConn) {
	ctx, cancel := context.WithTimeout(r.Context(), d)
	guest := x.connect(v, 0)
	closeConn := guest.close
	guest.close = func() { cancel(); closeConn() }
	return ctx, guest
}

// header returns the request headers with the port and the sandbox's tokens.
func (r guestConn) header(port int) http.Header {
	h := http.Header{}
	h.Set(ingress.IDHeader, r.sb.ID)
	h.Set(ingress.PortHeader, strconv.Itoa(port))
	h.Set("X-Access-Token", r.sb.AccessToken)
	if port != guestboot.Port && r.sb.TrafficToken != "" {
		h.Set(ingress.TrafficHeader, r.sb.TrafficToken)
	}
	return h
}

func (r guestConn) process() *client.Client {
	return client.New(r.client, baseURL, r.header(guestboot.Port))
}

// files is the client for calls about one file.
func (r guestConn) files() filesystempbconnect.FilesystemClient {
	return guestwire.Filesystem(r.client, baseURL, guestwire.One)
}

// lists is the client for lists of files. It reads one entry more than a page shows, to find out
// whether there are more.
func (r guestConn) lists() filesystempbconnect.FilesystemClient {
	limit := guestwire.Listing
	limit.Items, limit.Cut = maxEntries+1, true
	return guestwire.Filesystem(r.client, baseURL, limit)
}

// call sends a request to the file service.
func call[T any](r guestConn, msg *T) *connect.Request[T] {
	req := connect.NewRequest(msg)
	maps.Copy(req.Header(), r.header(guestboot.Port))
	return req
}

// codeKinds maps the guest's error codes to kinds of faults.
var codeKinds = map[connect.Code]fault.Kind{
	connect.CodeNotFound: fault.NotFound, connect.CodeAlreadyExists: fault.Exists, connect.CodePermissionDenied: fault.Denied,
	connect.CodeInvalidArgument: fault.Invalid, connect.CodeFailedPrecondition: fault.Conflict, connect.CodeResourceExhausted: fault.Exhausted,
	connect.CodeUnimplemented: fault.Unsupported, connect.CodeCanceled: fault.Canceled,
}

// guestError converts the guest's error. Its text comes from the sandbox and is treated as data.
func guestError(err error) error {
	if err == nil {
		return nil
	}
	if _, own := errors.AsType[*fault.Error](err); own {
		return err
	}
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return guestFailed(err)
	}
	kind, ok := codeKinds[e.Code()]
	if !ok {
		return guestFailed(err)
	}
	return fault.Wrap(err, kind, "file_"+string(kind), clipMessage(e.Message()))
}

// guestFailed returns the error of a guest that did not answer.
func guestFailed(cause error) error {
	return fault.Wrap(cause, fault.Unavailable, "guest_failed", "the sandbox did not answer")
}

// statusKinds maps the guest's HTTP statuses to kinds of faults.
var statusKinds = map[int]fault.Kind{
	http.StatusBadRequest: fault.Invalid, http.StatusUnauthorized: fault.Denied, http.StatusForbidden: fault.Denied,
	http.StatusNotFound: fault.NotFound, http.StatusConflict: fault.Conflict, http.StatusRequestEntityTooLarge: fault.Exhausted,
	http.StatusInsufficientStorage: fault.Exhausted, http.StatusTooManyRequests: fault.Exhausted, http.StatusServiceUnavailable: fault.Unavailable,
}

// guestHTTPError returns the error of a failed plain HTTP request.
func guestHTTPError(res *http.Response, code string) error {
	var body struct {
		Message string `json:"message"`
	}
	text := "the sandbox answered " + strconv.Itoa(res.StatusCode)
	if json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&body) == nil && body.Message != "" {
		text = clipMessage(strings.TrimSpace(body.Message))
	}
	kind, ok := statusKinds[res.StatusCode]
	if !ok {
		kind = fault.Unavailable
	}
	return fault.New(kind, code+"_"+string(kind), text)
}

// readJSON strictly parses the small body of a page's request.
func readJSON(w http.ResponseWriter, r *http.Request, limit int64, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return fault.Newf(fault.Exhausted, httpstatus.BodyTooLarge, "the body is larger than %d bytes", limit)
		}
		return fault.Wrap(err, fault.Invalid, "invalid_json", "the body does not have the expected fields")
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, body any) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// A write error means that the client has left.
	_ = json.NewEncoder(w).Encode(body)
	return nil
}
