package proxy

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

// identify checks that a request is for the host of its connection, and that it can be interpreted
// in only one way.
func (x *exchange) identify() *refusal {
	f, r := x.flow, x.r
	x.dest.tls = f.dest.tls
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace || !upperCase(r.Method) {
		// Some servers treat a method in lower case like the upper-case one in the rule.
		return floor(http.StatusMethodNotAllowed, "method", policy.RuleMethod, "this method is not passed on")
	}
	x.action.method = r.Method
	if stop := x.authority(); stop != nil {
		return stop
	}
	x.record.Host, x.record.Port = x.dest.host, x.dest.port
	if x.action.path = r.URL.EscapedPath(); x.action.path == "" && r.URL.IsAbs() {
		x.action.path = "/"
	}
	x.record.Path = x.action.path
	if r.URL.Opaque != "" || r.URL.User != nil {
		return floor(http.StatusBadRequest, "path", policy.RulePath, "the request's target is not a path")
	}
	x.action.upgrade = webSocket(r)
	if x.action.upgrade {
		x.record.Kind = egress.KindWebSocket
	}
	return x.read()
}

// authority sets the request's host and port, after comparing them with the connection's. Other
// headers that name a host are not forwarded.
func (x *exchange) authority() *refusal {
	f, r := x.flow, x.r
	usual, scheme := 80, "http"
	if f.dest.tls {
		usual, scheme = 443, "https"
	}
	if r.URL.IsAbs() && r.URL.Scheme != scheme {
		return floor(http.StatusBadRequest, "scheme", policy.RuleHostHeader, "the request's scheme is not the connection's; use CONNECT for https")
	}
	if f.mode.proxy && !r.URL.IsAbs() {
		return floor(http.StatusBadRequest, "no_target", policy.RuleHostHeader, "this port accepts CONNECT and requests with a full URL")
	}
	if other := r.Header.Values("Host"); len(other) > 0 {
		// HTTP/2 can have it in addition to :authority.
		return floor(http.StatusBadRequest, "host", policy.RuleHostHeader, "the request names its host twice")
	}
	target := r.Host
	if r.URL.IsAbs() && r.URL.Host != target {
		return floor(http.StatusMisdirectedRequest, "misdirected", policy.RuleHostHeader, "the request names two hosts")
	}
	host, port, err := authority(target, usual)
	switch {
	case err != nil && f.mode.proxy:
		return floor(http.StatusBadRequest, "host", policy.RuleName, fault.PublicText(err))
	case err != nil:
		return floor(http.StatusMisdirectedRequest, "misdirected", policy.RuleHostHeader, fault.PublicText(err))
	case f.mode.proxy:
		x.dest.host, x.dest.port = host, port
		return nil
	}
	x.dest.host, x.dest.port = f.dest.host, f.dest.port
	switch {
	case host != f.dest.host:
		// Many hosts may share one address and one certificate.
		return floor(http.StatusMisdirectedRequest, "misdirected", policy.RuleHostHeader, "the request is for "+host+", and the connection goes to "+f.dest.host)
	case port != f.dest.port:
		return floor(http.StatusMisdirectedRequest, "misdirected", policy.RulePort, "the request is for another port than the connection's")
	}
	return nil
}

// authority parses a host and a port. The host may be an address, in Go's spelling.
func authority(s string, usual int) (string, int, error) {
	host, port, err := names.Authority(s, usual)
	if err == nil {
		return host, port, nil
	}
	if a, perr := netip.ParseAddrPort(s); perr == nil && a.String() == s && a.Port() != 0 {
		return a.Addr().Unmap().String(), int(a.Port()), nil
	}
	if a, perr := netip.ParseAddr(s); perr == nil && a.Is4() && usual != 0 {
		return a.String(), usual, nil
	}
	return "", 0, err
}

func upperCase(method string) bool {
	for i := 0; i < len(method); i++ {
		if c := method[i]; (c < 'A' || c > 'Z') && c != '-' && c != '_' {
			return false
		}
	}
	return method != "" && method != "PRI"
}

// webSocket reports whether a request opens a WebSocket. Other upgrades are not forwarded, because
// the meaning of the bytes after them is unknown.
func webSocket(r *http.Request) bool {
	return r.Method == http.MethodGet && r.ProtoMajor == 1 && r.ContentLength == 0 &&
		httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") &&
		len(r.Header["Upgrade"]) == 1 && strings.EqualFold(r.Header["Upgrade"][0], "websocket")
}

// authorize applies the policy and, if required, requests approval. If the policy changes in
// between, it starts again.
func (x *exchange) authorize() *refusal {
	for range 4 {
		if stop := x.register(); stop != nil {
			return stop
		}
		x.gen = x.handler.current.Load()
		for _, step := range []func() *refusal{x.decide, x.choose, x.permit, x.approve} {
			if stop := step(); stop != nil {
				return stop
			}
		}
		x.flow.mu.Lock()
		x.progress.out = true
		x.flow.mu.Unlock()
		// From here on Update stops the request if a new policy forbids it.
		if x.handler.current.Load() == x.gen {
			return nil
		}
	}
	return floor(http.StatusServiceUnavailable, "policy_changing", policy.RuleLimit, "the policy changes faster than requests are judged")
}

// register registers the exchange, so that Update can stop it.
func (x *exchange) register() *refusal {
	x.flow.mu.Lock()
	defer x.flow.mu.Unlock()
	x.progress.known = true
	if x.progress.why != "" {
		return floor(http.StatusForbidden, "stopped", policy.RuleLimit, x.progress.why)
	}
	return nil
}

// evaluate returns a policy's decision about the request: the strictest of those about its
// readings.
func (x *exchange) evaluate(g *generation) (egress.Decision, []policy.Limits) {
	var d egress.Decision
	var limits []policy.Limits
	for i, r := range x.action.readings {
		also, l := g.policy.Request(policy.Request{Host: x.dest.host, Port: x.dest.port, Method: r.method, Path: r.path, WebSocket: x.action.upgrade, TLS: x.dest.tls})
		limits = append(limits, l)
		if i == 0 || also.Effect.Stricter(d.Effect) {
			d = also
		}
	}
	return d, limits
}

// decide applies the policy to the request, and refuses it if the policy denies it.
func (x *exchange) decide() *refusal {
	x.conn = x.gen.policy.Connect(x.dest.host, x.dest.port)
	if x.conn.Effect == egress.Deny {
		return byPolicy(x.conn.Decision)
	}
	for _, r := range x.action.readings {
		if err := names.Path(r.path, names.PathOptions{EncodedSlash: x.conn.EncodedSlash}); err != nil {
			return floor(http.StatusBadRequest, "path", policy.RulePath, fault.PublicText(err))
		}
	}
	if stop := x.askHost(); stop != nil {
		return stop
	}
	d, limits := x.evaluate(x.gen)
	if changed, stop := x.readForm(d); stop != nil {
		return stop
	} else if changed {
		d, limits = x.evaluate(x.gen)
	}
	x.question.kind, x.question.summary, x.question.extra = egress.AskRequest, "", nil
	d, stop := x.special(d)
	if stop != nil {
		return stop
	}
	if x.isGranted(d) && x.question.kind == egress.AskRequest {
		d.Effect = egress.Allow
	}
	if d.Effect == egress.Deny {
		return byPolicy(d)
	}
	x.decision = d
	x.record.Decision = d
	return x.measure(limits)
}

// isGranted reports whether a person has already approved the connection as a whole, or this
// request.
func (x *exchange) isGranted(d egress.Decision) bool {
	return d.Effect == egress.Ask && (d.Rule == x.flow.consent.granted || d.Rule == x.progress.granted)
}

// askHost requests approval of the host of a request to the proxy port, which has no connection of
// its own.
func (x *exchange) askHost() *refusal {
	if !x.flow.mode.proxy {
		return nil
	}
	d, asks := x.gen.asksHost(x.conn, x.dest.host, x.dest.port, x.dest.tls)
	if !asks || x.progress.granted == d.Rule {
		return nil
	}
	id, stop := x.handler.requestApproval(x.ctx, x.gen, d, x.dest.host, x.dest.port, hostRequest(x.dest.host, x.dest.port))
	if stop != nil {
		return stop
	}
	x.record.Approval = id
	x.flow.mu.Lock()
	defer x.flow.mu.Unlock()
	x.progress.granted = d.Rule
	return nil
}

// measure counts the request against the limits of its rules.
func (x *exchange) measure(limits []policy.Limits) *refusal {
	if x.metered.paid {
		return nil
	}
	for _, l := range limits {
		m := x.handler.load.meters.of(l)
		if m == nil || slices.Contains(x.metered.counts, m) {
			continue // several readings of one request count once
		}
		over := func(reason string, wait time.Duration) *refusal {
			d := x.decision
			d.Effect, d.Reason, d.Fix = egress.Deny, reason, ""
			return &refusal{status: http.StatusTooManyRequests, code: "rate_limited", decision: d, retry: wait}
		}
		if m.full() {
			return over("the rule's limit of bytes is reached", 0)
		}
		if !m.connect() {
			return over("the rule's connections are all in use", time.Second)
		}
		x.metered.held = append(x.metered.held, m)
		if wait, ok := m.request(); !ok {
			return over("the rule's limit of requests is reached", wait)
		}
		x.metered.counts = append(x.metered.counts, m)
	}
	x.metered.paid = true
	return nil
}

// count counts bytes against the limits of its rules.
func (x *exchange) count(n int) error {
	for _, m := range x.metered.counts {
		if err := m.add(n); err != nil {
			return err
		}
	}
	return nil
}
