package ingress

import (
	"context"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/fault/httpstatus"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/signature"
	"github.com/crannog/crannog/internal/sandbox"
)

// tokenHeader contains the token of the guest's services.
const tokenHeader = "X-Access-Token"

const (
	// wakeTimeout bounds how long requests wait for one resume.
	wakeTimeout = time.Minute
	// maxWaiting bounds the requests that wait for one sandbox, because each holds a connection.
	maxWaiting = 1024
	// resumePause is how long a failed resume is not retried, so that a client cannot keep the
	// server busy with a resume that cannot succeed.
	resumePause = time.Second
	// maxAttempts bounds how often a request retries with a sandbox that is paused again and again.
	maxAttempts = 3
)

// pendingResume is one resume, which all requests for its sandbox share.
type pendingResume struct {
	done    chan struct{} // closed when err is set
	err     error
	waiting int // guarded by Proxy.mu
}

// resumeFor handles a request for a paused sandbox. The result retry is true if the sandbox was
// resumed and the request should be retried. The result answered is true if the request has been
// answered. Both are false if traffic does not resume the sandbox.
func (p *Proxy) resumeFor(w http.ResponseWriter, r *http.Request, to target) (retry, answered bool) {
	sb, ok := p.Waker.ResumesOnTraffic(r.Context(), to.id)
	if !ok {
		return false, false
	}
	if to.port == guestboot.Port && preflight(r) {
		allowAny(w, r)
		return false, true
	}
	if refusal := mayResume(r, to, sb); refusal != nil {
		if refusal.status == http.StatusForbidden || refusal.status == http.StatusBadGateway {
			p.Tap.TurnedAway(to.id, r.Method, to.port)
		}
		refusal.write(w, r)
		return false, true
	}
	if err := p.wake(r.Context(), to.id); err != nil {
		p.resumeFailed(w, r, to, err)
		return false, true
	}
	return true, false
}

// mayResume rejects a request that would be rejected if the sandbox ran. Programs inside make their
// own checks, but a wrong token for the guest must not cause a resume. Otherwise an attacker who
// knows an ID could keep the sandbox running at its owner's expense.
func mayResume(r *http.Request, to target, sb sandbox.Sandbox) *refusal {
	if refusal := admit(r, to, sb); refusal != nil {
		return refusal
	}
	guarded := to.port == guestboot.Port || to.port == guestboot.InterpreterPort && r.URL.Path == "/execute"
	if !guarded || to.byURL || hasToken(r, sb) || to.port == guestboot.Port && signedFor(r, sb) {
		return nil
	}
	return notFound(to.id)
}

// hasToken compares in constant time, so that the token cannot be guessed byte by byte. An empty
// token matches nothing.
func hasToken(r *http.Request, sb sandbox.Sandbox) bool {
	got := r.Header.Get(tokenHeader)
	return sb.AccessToken != "" && subtle.ConstantTimeCompare([]byte(got), []byte(sb.AccessToken)) == 1
}

// signedFor reports whether a request for a file has a signature of the sandbox that has not
// expired.
func signedFor(r *http.Request, sb sandbox.Sandbox) bool {
	if r.URL.Path != filesPath {
		return false
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return false
	}
	expires, err := signature.ParseExpiration(query.Get("signature_expiration"))
	return err == nil && verify(r.Method, query, expires, sb) && !signature.Expired(expires, time.Now().Unix())
}

// wake waits until a sandbox is resumed, together with all other requests for it. The resume
// continues if this client leaves.
func (p *Proxy) wake(ctx context.Context, id string) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return sandbox.Unknown(id)
	}
	k := p.pendingResumes[id]
	if k == nil {
		k = &pendingResume{done: make(chan struct{})}
		p.pendingResumes[id] = k
		go p.resume(id, k)
	}
	if k.waiting >= maxWaiting {
		p.mu.Unlock()
		return fault.New(fault.Exhausted, "too_many_waiting", "too many requests wait for the sandbox")
	}
	k.waiting++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		k.waiting--
		p.mu.Unlock()
	}()
	select {
	case <-k.done:
		return k.err
	case <-p.ctx.Done():
		return sandbox.Unknown(id)
	case <-ctx.Done():
		return fault.Wrap(context.Cause(ctx), fault.Canceled, "canceled", "the request was canceled")
	}
}

// resume resumes a sandbox for all waiting requests.
func (p *Proxy) resume(id string, k *pendingResume) {
	ctx, cancel := context.WithTimeoutCause(p.ctx, wakeTimeout,
		fault.New(fault.Timeout, "resume_timeout", "the sandbox was not resumed in time"))
	defer cancel()
	_, k.err = p.Waker.Wake(ctx, id)
	if k.err != nil && context.Cause(ctx) != nil && p.ctx.Err() == nil {
		k.err = context.Cause(ctx)
	}
	forget := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.pendingResumes[id] == k {
			delete(p.pendingResumes, id)
		}
	}
	switch {
	case k.err == nil || p.ctx.Err() != nil || fault.KindOf(k.err) == fault.NotFound:
		forget()
	default:
		p.Log.Warn("sandbox not resumed by traffic", "sandbox", id, "err", k.err)
		time.AfterFunc(resumePause, forget)
	}
	close(k.done)
}

// wakeCodes maps the reason of a failed resume to the code for clients of the guest. The caller may
// be anyone, so all other reasons are answered as internal.
var wakeCodes = map[fault.Kind]string{
	fault.Conflict:    "aborted",
	fault.Exhausted:   "resource_exhausted",
	fault.Unavailable: "unavailable",
	fault.Timeout:     "deadline_exceeded",
	fault.Unsupported: "unimplemented",
}

const resumeFailedText = "The sandbox is paused and cannot be resumed now"

// resumeFailed answers after a failed resume. The caller may be anyone, so only the log has the
// cause.
func (p *Proxy) resumeFailed(w http.ResponseWriter, r *http.Request, to target, err error) {
	switch {
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client left
	case fault.KindOf(err) == fault.NotFound, p.ctx.Err() != nil:
		notFound(to.id).write(w, r)
		return
	}
	if after := fault.RetryAfterSeconds(err); after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	status := httpstatus.Of(err)
	code, ok := wakeCodes[fault.KindOf(err)]
	if !ok {
		status, code = http.StatusInternalServerError, "internal"
	}
	if to.port == guestboot.Port && refuseCall(w, r, status, code, resumeFailedText) {
		return
	}
	(&refusal{status: status, id: to.id, message: resumeFailedText}).write(w, r)
}

// preflight reports whether a request is a browser's CORS preflight.
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// allowAny answers a preflight as the guest would. A preflight carries no token, so it cannot
// resume the sandbox, and without an answer the browser never sends the request with the token.
func allowAny(w http.ResponseWriter, r *http.Request) {
	limitUnreadBody(w)
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "HEAD, GET, POST, PUT, PATCH, DELETE")
	// A star does not cover Authorization, so the requested headers are named.
	if requested := r.Header.Get("Access-Control-Request-Headers"); requested != "" {
		h.Set("Access-Control-Allow-Headers", requested)
	}
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}
