package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/egress/policy"
)

// incoming is a connection attempt, such as an attachment.Flow.
type incoming interface {
	Destination() netip.AddrPort
	Accept() (net.Conn, error)
	Refuse()
}

// flow is one connection of the sandbox. Only its own goroutine changes the fields below mu, but
// others read them when the policy changes.
type flow struct {
	handler *Handler
	started time.Time
	dst     netip.AddrPort
	ctx     context.Context // ends with the flow
	stop    context.CancelFunc

	requests      requestCounts
	traffic       traffic
	receivedFirst atomic.Bool // a first byte has arrived

	mu        sync.Mutex
	conn      net.Conn // nil until accepted
	dest      destination
	mode      mode
	consent   consent
	refused   *refusal
	upstream  net.Conn // of an opaque flow
	recorded  bool
	killed    killed
	meters    []*meter
	exchanges map[*exchange]struct{}
}

// requestCounts has the number of requests that the server has begun to read, and the number that
// were decided. The other ones were not HTTP.
type requestCounts struct{ read, decided atomic.Int64 }

// mode is how a flow's bytes are treated.
type mode struct {
	proxy     bool // at the proxy port, before a CONNECT
	connected bool // by CONNECT
	opaque    bool // the bytes are not decrypted
}

// consent is a person's approval of a connection.
type consent struct {
	granted  string // the rule
	approved string // the approval's ID
}

// killed is set when a flow is ended from outside.
type killed struct {
	dead bool
	why  string
}

// TCP handles a connection attempt of the sandbox.
func (b *Handler) TCP(f *attachment.Flow) { b.take(f) }

func (b *Handler) take(in incoming) {
	f := b.begin(in)
	if f == nil {
		in.Refuse()
		return
	}
	passedOn := false
	defer func() {
		// A panic that one sandbox causes must not end this process, which serves other sandboxes
		// too.
		if p := recover(); p != nil {
			f.note(floor(http.StatusInternalServerError, "internal", policy.RuleProtocol, "an internal error"), fmt.Sprint(p))
			f.kill("an internal error")
		}
		if !passedOn {
			in.Refuse()
			f.end()
		}
	}()
	if stop := f.aim(); stop != nil {
		f.note(stop, "")
		return
	}
	if err := b.records.ready(b.current.Load()); err != nil {
		return
	}
	raw, err := in.Accept()
	if err != nil {
		f.note(nil, err.Error())
		return
	}
	c := &client{Conn: raw, flow: f}
	if !f.accept(c) {
		return
	}
	if f.mode.proxy {
		passedOn = b.front.handover.offer(c)
		return
	}
	passedOn = f.enter(c)
}

// begin registers a connection, if the limits allow it.
func (b *Handler) begin(in incoming) *flow {
	if !b.floods.connects.take(b, egress.KindTCP) {
		return nil
	}
	f := &flow{handler: b, started: time.Now(), dst: in.Destination(), exchanges: map[*exchange]struct{}{}}
	f.ctx, f.stop = context.WithCancel(b.life.ctx)
	b.mu.Lock()
	full := len(b.flows) >= b.limits.Connections
	if !full && !b.closed {
		b.flows[f] = struct{}{}
		b.mu.Unlock()
		return f
	}
	b.mu.Unlock()
	f.stop()
	if full {
		f.note(floor(0, "too_many", policy.RuleLimit, "too many connections are open"), "")
	}
	return nil
}

// aim determines the destination of a connection, and whether anything there could be allowed.
func (f *flow) aim() *refusal {
	a := f.dst.Addr().Unmap()
	if a == egress.Gateway && f.dst.Port() == egress.ProxyPort {
		f.mode.proxy = true
		return nil
	}
	host, known := f.handler.names.Name(a)
	switch {
	case known:
	case egress.Synthetic.Contains(a), egress.SandboxPrefix.Contains(a):
		f.target(a.String(), int(f.dst.Port()))
		return floor(0, "no_name", policy.RuleName, "no name has this address")
	default:
		host = a.String()
	}
	f.target(host, int(f.dst.Port()))
	c := f.handler.current.Load().policy.Connect(host, f.dest.port)
	if c.Effect == egress.Deny {
		return byPolicy(c.Decision)
	}
	return f.handler.undialled(host, c, 0)
}

// undialled refuses an address that would not be dialled in the end, as if it had no listener, so
// that a scan finds no open port. Names get their addresses only when they are dialled.
func (b *Handler) undialled(host string, c policy.Connection, status int) *refusal {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	if err := names.CheckAddress(a, c.Private, b.back.dialer.Own); err != nil {
		stop := byUpstream(err)
		stop.status = status
		return stop
	}
	return nil
}

func (f *flow) target(host string, port int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dest.host, f.dest.port = host, port
}

func (f *flow) accept(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.killed.dead {
		reset(c)
		return false
	}
	f.conn = c.(*client).Conn
	return true
}

// enter decides about a connection with a known destination by its first bytes. It returns true if
// it passed the connection to the HTTP server.
func (f *flow) enter(c *client) (passedOn bool) {
	b := f.handler
	g := b.current.Load()
	conn := g.policy.Connect(f.dest.host, f.dest.port)
	if conn.Effect == egress.Deny {
		return f.drop(byPolicy(conn.Decision), "")
	}
	m := b.load.meters.of(conn.Limits)
	if !f.holdsConnection(m) {
		d := conn.Decision
		d.Effect, d.Reason = egress.Deny, "the rule's connections are all in use"
		return f.drop(&refusal{code: "rate_limited", decision: d}, "")
	}
	if conn.Tunnel {
		f.tunnel(c, g, conn, m)
		return false
	}
	if err := c.SetReadDeadline(time.Now().Add(b.limits.Handshake)); err != nil {
		return f.drop(nil, err.Error())
	}
	head, err := c.peek(1)
	switch {
	case err != nil:
		return f.drop(nil, "the program sent nothing: "+err.Error())
	case head[0] == recordHandshake:
		return f.secure(c, g, conn, m)
	case 'A' <= head[0] && head[0] <= 'Z':
		return f.plain(c, g, conn)
	default:
		// For example SSH, or another protocol on the port of HTTPS.
		return f.drop(floor(0, "protocol", policy.RuleProtocol, "this is neither TLS nor HTTP"), "")
	}
}

// plain passes HTTP without TLS to the server, which gets a decision for each request.
func (f *flow) plain(c *client, g *generation, conn policy.Connection) bool {
	if stop := f.ask(g, conn); stop != nil {
		f.refuseAll(stop)
	}
	return f.hand(c, c)
}

// hand passes the connection to the HTTP server.
func (f *flow) hand(c *client, served net.Conn) bool {
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return f.drop(nil, err.Error())
	}
	return f.handler.front.handover.offer(served)
}

// holdsConnection counts the flow as one of a rule's connections until it ends. It returns false if
// the limit is reached.
func (f *flow) holdsConnection(m *meter) bool {
	if m == nil {
		return true
	}
	if !m.connect() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.meters = append(f.meters, m)
	return true
}

// drop writes an entry with the reason, which ends the connection. It returns false, so that enter
// can return its result.
func (f *flow) drop(why *refusal, failure string) bool {
	f.note(why, failure)
	return false
}

// note writes the entry of a connection that has no other entry.
func (f *flow) note(why *refusal, failure string) {
	f.mu.Lock()
	done := f.recorded
	f.recorded = true
	if f.killed.why != "" && failure == "" {
		failure = f.killed.why
	}
	r := egress.Record{
		Time: f.started, Kind: egress.KindTCP, Host: f.dest.host, Port: f.dest.port, Took: time.Since(f.started), Error: failure,
		Decision: egress.Decision{Effect: egress.Allow, Rule: "connection", Reason: "nothing was requested"},
	}
	if f.mode.proxy || f.mode.connected {
		r.Kind = egress.KindConnect
	}
	if r.Host == "" {
		r.Host, r.Port = f.dst.Addr().String(), int(f.dst.Port())
	}
	f.mu.Unlock()
	if done {
		return
	}
	if why != nil {
		r.Decision, r.Status = why.decision, why.status
		if why.answer != nil {
			r.Approval = why.answer.Approval
		}
	}
	if r.Probe = !f.receivedFirst.Load() && !f.mode.proxy && f.handler.probes.take(r); r.Probe && why == nil {
		r.Reason, r.Error = "A connection is allowed; nothing was sent.", ""
	}
	// The connection ends regardless of the error.
	_ = f.handler.records.add(r, f.handler.current.Load())
}

func (f *flow) connection() net.Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conn
}

// markRecorded notes that the flow has its own entries.
func (f *flow) markRecorded() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recorded = true
}

func (f *flow) refuseAll(r *refusal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = r
}

// end closes the connection and removes it.
func (f *flow) end() {
	f.note(nil, "")
	f.mu.Lock()
	conn, held := f.conn, f.meters
	f.meters, f.killed.dead = nil, true
	f.mu.Unlock()
	f.stop()
	if conn != nil {
		_ = conn.Close()
	}
	for _, m := range held {
		m.release()
	}
	b := f.handler
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, here := b.flows[f]; !here {
		return
	}
	delete(b.flows, f)
	if b.closed && len(b.flows) == 0 {
		close(b.empty)
	}
}

// kill ends the connection at once, with everything that uses it.
func (f *flow) kill(why string) {
	f.mu.Lock()
	if f.killed.why == "" {
		f.killed.why = why
	}
	f.killed.dead = true
	conn, upstream := f.conn, f.upstream
	for x := range f.exchanges {
		x.stop(why)
	}
	f.mu.Unlock()
	f.stop()
	if conn != nil {
		reset(conn)
	}
	if upstream != nil {
		_ = upstream.Close()
	}
}

// review ends the flow or its requests if a new policy no longer allows them.
func (f *flow) review(g *generation) {
	if why := f.reasonToEnd(g); why != "" {
		f.kill(why)
	}
}

// reasonToEnd returns the reason why a connection must end, or "". It stops requests that no longer
// fit.
func (f *flow) reasonToEnd(g *generation) string {
	const changed = "the policy no longer allows this"
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused != nil {
		return "the policy has changed" // the next attempt gets a new decision
	}
	if !f.mode.proxy && f.dest.host != "" {
		c := g.policy.Connect(f.dest.host, f.dest.port)
		asked := c.Effect == egress.Ask && f.consent.granted == c.Rule
		opaque := c.Tunnel || !c.Inspect && !g.bound[location{f.dest.host, f.dest.port}]
		if c.Effect == egress.Deny || f.mode.opaque && (!opaque || c.Effect != egress.Allow && !asked) {
			return changed
		}
		if f.upstream != nil {
			if a, ok := remote(f.upstream); ok && names.CheckAddress(a, c.Private, f.handler.back.dialer.Own) != nil {
				return changed
			}
		}
	}
	for x := range f.exchanges {
		if !x.fits(g) {
			x.stop(changed)
		}
	}
	return ""
}

// remote returns the address of the peer of an upstream connection.
func remote(c net.Conn) (netip.Addr, bool) {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap(), true
	}
	return netip.Addr{}, false
}

type flowKey struct{}

// withFlow adds a connection's flow to the context of its requests.
func withFlow(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, flowKey{}, flowOf(c))
}

// state handles state changes of a connection of the HTTP server.
func (b *Handler) state(c net.Conn, s http.ConnState) {
	f := flowOf(c)
	switch s {
	case http.StateActive:
		f.requests.read.Add(1)
	case http.StateClosed:
		f.recordUnparsed(c)
		f.end()
	case http.StateNew, http.StateIdle, http.StateHijacked:
	}
}

// recordUnparsed writes an entry about a request that the server could not parse and answered
// itself. Nothing of the request was forwarded.
func (f *flow) recordUnparsed(c net.Conn) {
	if f.requests.read.Load() <= f.requests.decided.Load() {
		return
	}
	bad := floor(http.StatusBadRequest, "malformed", policy.RuleProtocol, "this is not HTTP that can be inspected")
	if t, ok := c.(*tls.Conn); ok && t.ConnectionState().NegotiatedProtocol == "h2" || f.requests.decided.Load() == 0 {
		// With HTTP/2 these are connections, which have other entries.
		f.note(bad, "")
		return
	}
	f.mu.Lock()
	r := egress.Record{Time: time.Now(), Kind: egress.KindHTTP, Host: f.dest.host, Port: f.dest.port, Status: bad.status, Decision: bad.decision, Error: f.killed.why}
	f.mu.Unlock()
	_ = f.handler.records.add(r, f.handler.current.Load())
}
