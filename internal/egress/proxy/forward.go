package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/git"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

// hopByHop headers apply to one connection, so they are not forwarded.
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// dropHops removes hop-by-hop headers and the headers that Connection names. Otherwise a sandbox
// could use Connection to have a header removed that the gateway sets for a secret.
func dropHops(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
}

// forward sends the request and passes on the response. It returns a refusal only if the sandbox
// has received nothing yet.
func (x *exchange) forward() *refusal {
	out, stop := x.outgoing()
	if stop != nil {
		return stop
	}
	if stop := x.commit(); stop != nil {
		return stop
	}
	resp, err := x.gen.transport.RoundTrip(out)
	if err != nil {
		return x.failed(err)
	}
	defer resp.Body.Close()
	x.record.Status = resp.StatusCode
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return x.switched(resp)
	}
	return x.answer(resp)
}

// outgoing creates the upstream request. Its host is the one that the policy allowed, not the one
// that the sandbox sent.
func (x *exchange) outgoing() (*http.Request, *refusal) {
	r := x.r
	h := r.Header.Clone()
	trailers := httpguts.HeaderValuesContainsToken(h["Te"], "trailers")
	dropHops(h)
	delete(h, "Expect") // this proxy has answered it
	if trailers {
		h["Te"] = []string{"trailers"} // gRPC servers require it
	}
	if _, given := h["User-Agent"]; !given {
		h["User-Agent"] = nil // otherwise net/http sets its own
	}
	if x.masked() || x.action.git.op == git.FetchRefs || x.action.git.op == git.PushRefs {
		// Redaction must be able to read the response.
		h["Accept-Encoding"] = []string{"identity"}
		delete(h, "Sec-Websocket-Extensions")
	}
	if x.masked() {
		if stop := x.dropRanges(h); stop != nil {
			return nil, stop
		}
	}
	if x.action.upgrade {
		h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	}
	if stop := x.inject(h); stop != nil {
		return nil, stop
	}
	host, usual := x.dest.host, 80
	u := &url.URL{Scheme: "http", Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery}
	if x.dest.tls {
		u.Scheme, usual = "https", 443
	}
	if u.Path == "" {
		u.Path = "/"
	}
	if x.dest.port != usual || strings.Contains(host, ":") {
		host = net.JoinHostPort(host, strconv.Itoa(x.dest.port))
	}
	u.Host = host
	out := &http.Request{
		Method: x.action.method, URL: u, Host: host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: r.ContentLength,
	}
	x.attach(out)
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { x.reached(i.Conn) }}
	return out.WithContext(httptrace.WithClientTrace(x.ctx, trace)), nil
}

// reached records the address of the upstream connection. The transport may call it after the end
// of the exchange.
func (x *exchange) reached(c net.Conn) {
	x.flow.mu.Lock()
	defer x.flow.mu.Unlock()
	x.progress.address = c.RemoteAddr().String()
}

// attach sets the body of the upstream request.
func (x *exchange) attach(out *http.Request) {
	if x.action.push != nil && x.action.push.Decoded {
		delete(out.Header, "Content-Encoding")
	}
	switch {
	case x.action.push != nil && x.action.body == nil:
		out.Body = io.NopCloser(&counter{Reader: x.action.push.Body, n: &x.traffic.sent, count: x.count})
		if x.action.push.Decoded {
			out.ContentLength = -1
		}
	case x.action.body != nil:
		out.ContentLength = x.action.body.size
		if x.action.body.size == 0 {
			out.Body = http.NoBody
			return
		}
		out.Body = io.NopCloser(&counter{Reader: x.action.body.reader(), n: &x.traffic.sent, count: x.count})
	case x.r.ContentLength == 0 || x.r.Body == nil || x.r.Body == http.NoBody:
		out.Body, out.ContentLength = nil, 0
	default:
		out.Body = io.NopCloser(&counter{Reader: x.limitPauses(x.r.Body), n: &x.traffic.sent, count: x.count})
	}
}

// limitPauses limits how long a body may pause. Otherwise a program that sends a byte now and then
// could occupy an upstream connection.
func (x *exchange) limitPauses(r io.Reader) io.Reader {
	return &pauseLimiter{r: r, c: http.NewResponseController(x.w), stall: x.handler.limits.Stall}
}

type pauseLimiter struct {
	r     io.Reader
	c     *http.ResponseController
	stall time.Duration
	set   time.Time
}

func (p *pauseLimiter) Read(b []byte) (int, error) {
	if now := time.Now(); now.Sub(p.set) > p.stall/8 {
		p.set = now
		if err := p.c.SetReadDeadline(now.Add(p.stall)); err != nil {
			return 0, err
		}
	}
	n, err := p.r.Read(b)
	if err != nil {
		_ = p.c.SetReadDeadline(time.Time{})
	}
	return n, err
}

// hold reads the body to its end.
func (x *exchange) hold() error {
	if x.action.body != nil {
		return nil
	}
	if x.r.Body == nil || x.r.Body == http.NoBody {
		return nil
	}
	from := x.limitPauses(x.r.Body)
	if x.action.push != nil {
		from = x.action.push.Body // its head was read
	}
	var err error
	x.action.body, err = x.handler.holdBody(from)
	return err
}

// holdRefusal returns the refusal for a body that could not be held.
func (x *exchange) holdRefusal(err error) *refusal {
	var r *refusal
	switch {
	case errors.Is(err, errTooLarge):
		r = floor(http.StatusRequestEntityTooLarge, "too_large", policy.RuleLimit, "the body is longer than what can be held during an approval")
	case errors.Is(err, errTooManyHeld):
		r = floor(http.StatusServiceUnavailable, "too_many", policy.RuleLimit, "too many bodies are held for approvals")
		r.retry = 5 * time.Second
	default:
		r = floor(http.StatusBadRequest, "body", policy.RuleProtocol, "the body ended before it was complete")
		r.cause = err
	}
	return r
}

// commit ensures that an entry can be written before anything is sent. An approved request, one
// that carries a secret and one that is not ordinary HTTP get an entry first.
func (x *exchange) commit() *refusal {
	if x.decision.Effect == egress.Ask {
		x.record.Effect = egress.Allow // a person approved it
	}
	lasting := x.action.upgrade || len(x.secrets) > 0 || x.record.Approval != "" || x.record.Kind != egress.KindHTTP
	if !lasting {
		if err := x.handler.records.ready(x.gen); err != nil {
			return unrecorded(err)
		}
		return nil
	}
	first := x.record
	first.Begins = true
	if err := x.handler.records.add(first, x.gen); err != nil {
		return unrecorded(err)
	}
	return nil
}

// failed returns the refusal for an upstream failure.
func (x *exchange) failed(err error) *refusal {
	x.record.Status = http.StatusBadGateway
	x.flow.mu.Lock()
	why := x.progress.why
	x.flow.mu.Unlock()
	if why != "" {
		return &refusal{status: http.StatusForbidden, code: "stopped", decision: denied(policy.RuleLimit, why), cause: err}
	}
	if errors.Is(err, errFormMethod) {
		return &refusal{status: http.StatusForbidden, code: "form_method", decision: denied(policy.RuleMethod, errFormMethod.Error()), cause: err}
	}
	if errors.Is(err, errBytes) {
		return overBytes(x.decision)
	}
	if proof, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		r := floor(http.StatusBadGateway, "upstream_certificate", policy.RuleCertificate, "the server cannot prove that it is "+x.dest.host)
		if _, ok := errors.AsType[x509.HostnameError](proof.Err); ok {
			r.decision.Reason += ": its certificate is for another name"
		}
		r.cause = err
		return r
	}
	if fault.KindOf(err) == fault.Internal {
		kind, code := fault.Unavailable, "upstream_failed"
		if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() || errors.Is(err, context.DeadlineExceeded) {
			kind, code = fault.Timeout, "upstream_timeout"
		}
		err = fault.Wrap(err, kind, code, x.dest.host+" did not answer")
	}
	return byUpstream(err)
}
