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
	// base is the URL for requests into sandboxes; the dialer ignores its host.
	base = "http://localhost"
	// idle is how long an unused in-memory connection is kept.
	idle = 30 * time.Second
	// answerTime bounds the guest's answer to a request about files. workTime bounds moving or
	// removing files, of which there may be many. Without these limits, a guest that an attacker
	// controls could block requests for ever, and a browser opens so few connections that the whole
	// console would hang.
	answerTime = 30 * time.Second
	workTime   = 10 * time.Minute
)

// reach is a connection into a sandbox for a caller.
type reach struct {
	visit
	client *http.Client
	close  func()
}

// reach returns a connection whose answers must begin within a time. Zero is for calls that answer
// only when they have finished.
func (x *Inside) reach(v visit, begins time.Duration) reach {
	caller := v.who.Principal()
	t := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return x.deps.Dial(ctx, caller) },
		DisableCompression: true, IdleConnTimeout: idle, MaxIdleConnsPerHost: 4, ResponseHeaderTimeout: begins,
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return reach{v, &http.Client{Transport: t, CheckRedirect: stay}, t.CloseIdleConnections}
}

// within bounds the whole answer by a context.
func (x *Inside) within(r *http.Request, v visit, d time.Duration) (context.Context, reach) {
	ctx, cancel := context.WithTimeout(r.Context(), d)
	in := x.reach(v, 0)
	leave := in.close
	in.close = func() { cancel(); leave() }
	return ctx, in
}

// header adds the port and the sandbox's token.
func (r reach) header(port int) http.Header {
	h := http.Header{}
	h.Set(ingress.IDHeader, r.box.ID)
	h.Set(ingress.PortHeader, strconv.Itoa(port))
	h.Set("X-Access-Token", r.box.AccessToken)
	if port != guestboot.Port && r.box.TrafficToken != "" {
		h.Set(ingress.TrafficHeader, r.box.TrafficToken)
	}
	return h
}

func (r reach) process() *client.Client {
	return client.New(r.client, base, r.header(guestboot.Port))
}

// files is the client for calls about one file.
func (r reach) files() filesystempbconnect.FilesystemClient {
	return guestwire.Filesystem(r.client, base, guestwire.One)
}

// lists is the client for lists of files. It reads one entry more than a page shows, to find out
// whether there are more.
func (r reach) lists() filesystempbconnect.FilesystemClient {
	limit := guestwire.Listing
	limit.Items, limit.Cut = maxEntries+1, true
	return guestwire.Filesystem(r.client, base, limit)
}

// call sends a request to the file service.
func call[T any](r reach, msg *T) *connect.Request[T] {
	req := connect.NewRequest(msg)
	maps.Copy(req.Header(), r.header(guestboot.Port))
	return req
}

// kinds map the guest's error codes to faults.
var kinds = map[connect.Code]fault.Kind{
	connect.CodeNotFound: fault.NotFound, connect.CodeAlreadyExists: fault.Exists, connect.CodePermissionDenied: fault.Denied,
	connect.CodeInvalidArgument: fault.Invalid, connect.CodeFailedPrecondition: fault.Conflict, connect.CodeResourceExhausted: fault.Exhausted,
	connect.CodeUnimplemented: fault.Unsupported, connect.CodeCanceled: fault.Canceled,
}

// guestError converts the guest's error. Its text comes from the sandbox and is treated as data.
func guestError(err error) error {
	if err == nil {
		return nil
	}
	if _, ours := errors.AsType[*fault.Error](err); ours {
		return err
	}
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return lost(err)
	}
	kind, ok := kinds[e.Code()]
	if !ok {
		return lost(err)
	}
	return fault.Wrap(err, kind, "file_"+string(kind), short(e.Message()))
}

func lost(cause error) error {
	return fault.Wrap(cause, fault.Unavailable, "guest_failed", "the sandbox did not answer")
}

// statuses map the guest's HTTP statuses to faults.
var statuses = map[int]fault.Kind{
	http.StatusBadRequest: fault.Invalid, http.StatusUnauthorized: fault.Denied, http.StatusForbidden: fault.Denied,
	http.StatusNotFound: fault.NotFound, http.StatusConflict: fault.Conflict, http.StatusRequestEntityTooLarge: fault.Exhausted,
	http.StatusInsufficientStorage: fault.Exhausted, http.StatusTooManyRequests: fault.Exhausted, http.StatusServiceUnavailable: fault.Unavailable,
}

// refused returns the error of a failed plain HTTP request.
func refused(res *http.Response, code string) error {
	var body struct {
		Message string `json:"message"`
	}
	text := "the sandbox answered " + strconv.Itoa(res.StatusCode)
	if json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&body) == nil && body.Message != "" {
		text = short(strings.TrimSpace(body.Message))
	}
	kind, ok := statuses[res.StatusCode]
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
