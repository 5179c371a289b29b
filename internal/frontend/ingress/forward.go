package ingress

import (
	"context"
	"errors"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/ingress/redaction"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

const controlHeader = guest.ControlHeader

// codeUnrecorded is the fault code for an entry that the audit log cannot accept.
const codeUnrecorded = "record_unavailable"

// rewrite directs a request to its port. It removes hop-by-hop headers, the control header and
// headers that would prevent redaction of the answer. Path, query, body and forwarding headers are
// unchanged.
func rewrite(pr *httputil.ProxyRequest) {
	t := tripOf(pr.In)
	if t == nil {
		return // the transport refuses a request without a target
	}
	out := pr.Out
	out.URL.Scheme = "http"
	out.URL.Host = t.id + ":" + strconv.Itoa(t.port)
	out.URL.RawQuery = pr.In.URL.RawQuery
	out.Host = hostFor(t, pr.In.Host)
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := pr.In.Header[name]; ok {
			out.Header[name] = values
		}
	}
	stripControl(out.Header)
	stripControl(out.Trailer)
	if t.port == guestboot.Port {
		// The guest supports plain requests only. An upgraded connection would carry requests past
		// the check of paths and headers above.
		out.Header.Del("Upgrade")
		out.Header.Del("Connection")
		out.Header.Del("Http2-Settings")
	}
	if t.port == guestboot.DevToolsPort {
		out.Header.Del(tokenHeader) // it gives access to the guest, so a program inside must not see it
	}
	redaction.Request(out.Header, t.port, t.redactor)
}

// modifyResponse processes an answer from the sandbox.
func modifyResponse(r *http.Response) error {
	t := tripOf(r.Request)
	if t == nil {
		return nil
	}
	if t.back.hasEnded() {
		return errGone // the saved state does not include this output
	}
	restrictOrigin(r, t)
	if err := redaction.Answer(r, t.port, t.redactor); err != nil {
		return err
	}
	return t.visit.Answer(r)
}

// hostFor returns the Host header for the program inside.
func hostFor(t *trip, host string) string {
	if t.sb.MaskRequestHost == "" || t.port == guestboot.Port {
		return host
	}
	return strings.ReplaceAll(t.sb.MaskRequestHost, "${PORT}", strconv.Itoa(t.port))
}

// sameOrigin lists headers that an answer from a sandbox must not set for an origin that it shares
// with the control plane and the console.
var sameOrigin = []string{
	"Set-Cookie", "Clear-Site-Data", "Service-Worker-Allowed",
	"Strict-Transport-Security", "Alt-Svc", "Refresh",
}

// restrictOrigin prevents content of a sandbox from acting in the server's origin: an HTML file
// behind a signed URL is shown without scripts and without access to the origin's storage.
func restrictOrigin(r *http.Response, t *trip) {
	if !t.shared {
		return
	}
	for _, name := range sameOrigin {
		r.Header.Del(name)
	}
	r.Header.Set("Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:")
	r.Header.Set("X-Content-Type-Options", "nosniff")
}

// failed answers a request that got no answer from the sandbox.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	t := tripOf(r)
	if h, ok := w.(*hardCloser); ok {
		w = h.ResponseWriter // the text in this answer is ours
	}
	switch {
	case t == nil:
		p.Log.Error("request without a target", "err", err)
		(&refusal{status: http.StatusInternalServerError, message: "internal error"}).write(w, r)
	case t.canRetry(r) && (isAway(err) || t.back.hasEnded()):
		t.unsent = true
	case t.back.hasEnded(), errors.Is(context.Cause(r.Context()), errGone):
		// No part of an answer was sent, so this answer is the proxy's own. An answer in progress
		// is cut off. The rest of an upload is not read, so the connection cannot be reused.
		w.Header().Set("Connection", "close")
		notFound(t.id).write(w, r)
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client left
	case fault.CodeOf(err) == codePortClosed:
		portClosed(t.target).write(w, r)
	case isAway(err):
		notFound(t.id).write(w, r)
	case fault.CodeOf(err) == codeUnrecorded:
		(&refusal{status: http.StatusServiceUnavailable, id: t.id, port: t.port, message: fault.PublicText(err)}).write(w, r)
	case fault.CodeOf(err) == redaction.CodeUnreadable:
		(&refusal{status: http.StatusBadGateway, id: t.id, port: t.port, message: fault.PublicText(err)}).write(w, r)
	default:
		p.Log.Debug("no answer from the sandbox", "sandbox", t.id, "port", t.port, "err", err)
		(&refusal{status: http.StatusBadGateway, id: t.id, port: t.port,
			message: "The sandbox is running but gave no valid answer"}).write(w, r)
	}
}
