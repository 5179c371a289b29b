package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

// exchange is one request and its response.
type exchange struct {
	handler *Handler
	flow    *flow
	gen     *generation // the policy that decided last
	w       http.ResponseWriter
	r       *http.Request
	started time.Time
	ctx     context.Context
	stopC   context.CancelFunc

	dest     destination
	action   action
	conn     policy.Connection
	decision egress.Decision
	secrets  []*sealed
	metered  metered
	question question

	record  egress.Record
	traffic traffic

	progress progress // guarded by flow.mu
}

// destination is where a connection or a request goes.
type destination struct {
	host string // canonical, or an address; "" for a flow at the proxy port
	port int
	tls  bool
}

// action is what a request does at its destination.
type action struct {
	method  string
	path    string // escaped
	upgrade bool   // it opens a WebSocket
	// readings are all ways in which a server may interpret the request, its request line first.
	readings []reading
	formRead bool       // the readings include the fields of a form, or the form is inspected while it is forwarded
	body     *heldBody  // set if the body was read to its end
	push     *push      // set if the request is a push
	git      gitRequest // what the request exactly is to git
}

// metered has the meters of a request's rules.
type metered struct {
	counts []*meter // all of them
	held   []*meter // those that count the request as a connection
	paid   bool     // the request was counted
}

// question has the fields of an approval request about an exchange.
type question struct {
	kind    string
	summary string
	extra   map[string]string
}

// traffic counts bytes.
type traffic struct{ sent, received atomic.Int64 }

// progress is the state of an exchange.
type progress struct {
	known   bool   // host, method and path are set
	out     bool   // the request may have been sent
	granted string // the rule that a person's approval covers
	fetches string // the repository, if a fetch is why a write needed no permission
	why     string // why the exchange was stopped
	close   func() // ends resources that a cancelled context does not end
	address string // of the upstream
}

// serve is called for each request of the sandbox.
func (b *Handler) serve(w http.ResponseWriter, r *http.Request) {
	f, _ := r.Context().Value(flowKey{}).(*flow)
	if f == nil {
		panic(http.ErrAbortHandler) // not a connection of this server
	}
	f.requests.decided.Add(1)
	x := f.exchange(w, r)
	if f.mode.proxy && r.Method == http.MethodConnect {
		x.connect()
		return
	}
	running := b.load.running.Add(1)
	defer x.end()
	stop := x.identify()
	if stop == nil && f.refused != nil {
		stop = f.refused
	}
	if stop == nil && running > int64(b.limits.Requests) {
		stop = floor(http.StatusTooManyRequests, "too_many", policy.RuleLimit, "too many requests are open")
		stop.retry = time.Second
	}
	if stop == nil {
		stop = x.authorize()
	}
	switch {
	case stop != nil && x.action.push != nil && x.action.push.bound:
		x.refusePush(stop)
		return
	case stop == nil:
		var answered bool
		if answered, stop = x.serveFromCache(); !answered && stop == nil {
			stop = x.forward()
		}
	}
	if stop != nil {
		x.refuse(stop)
	}
}

func (f *flow) exchange(w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{handler: f.handler, flow: f, w: w, r: r, started: time.Now(), gen: f.handler.current.Load()}
	x.ctx, x.stopC = context.WithCancel(r.Context())
	x.record = egress.Record{Time: x.started, Kind: egress.KindHTTP, Method: r.Method, Host: f.dest.host, Port: f.dest.port}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exchanges[x] = struct{}{}
	f.recorded = true
	if f.killed.dead {
		x.stop(f.killed.why)
	}
	return x
}

// stop ends an exchange. flow.mu must be held.
func (x *exchange) stop(why string) {
	if x.progress.why == "" {
		x.progress.why = why
	}
	x.stopC()
	if x.progress.close != nil {
		// Closing TLS may wait for the peer, which must not happen under the lock.
		go x.progress.close()
	}
}

// onStop adds a function that is called when the exchange is stopped. It returns false if the
// exchange has ended.
func (x *exchange) onStop(do func()) bool {
	x.flow.mu.Lock()
	defer x.flow.mu.Unlock()
	x.progress.close = do
	return x.progress.why == ""
}

// fits reports whether a new policy still allows an exchange. flow.mu must be held.
func (x *exchange) fits(g *generation) bool {
	if !x.progress.known {
		return true // g will decide about it
	}
	if g.policy.Connect(x.dest.host, x.dest.port).Effect == egress.Deny {
		return false
	}
	d, _ := x.evaluate(g)
	if d.Rule == policy.RuleWrites && x.progress.fetches != "" {
		d = g.policy.Fetch(x.dest.host, x.progress.fetches)
	}
	if d.Effect == egress.Deny || d.Effect == egress.Ask && x.progress.out && x.progress.granted != d.Rule && x.flow.consent.granted != d.Rule {
		return false
	}
	if !x.action.upgrade {
		return true
	}
	// A WebSocket that was opened with a secret ends with the secret.
	for _, s := range x.secrets {
		kept := false
		for _, o := range g.secrets {
			kept = kept || o.Name == s.Name && o.location == s.location
		}
		if !kept {
			return false
		}
	}
	return true
}

// refuse answers with a refusal.
func (x *exchange) refuse(r *refusal) {
	x.record.Decision, x.record.Status = r.decision, r.status
	if r.answer != nil {
		x.record.Approval = r.answer.Approval
	}
	if r.cause != nil {
		x.record.Error = r.cause.Error()
	}
	method := x.action.method
	if method == "" {
		method = printable(x.r.Method, 32)
	}
	if r == x.flow.refused {
		// The next try is a new connection, about which the policy decides anew.
		x.w.Header().Set("Connection", "close")
	}
	r.write(x.w, navigates(x.r), method, x.gen.text.String(x.target()))
}

// target returns the request's destination, without its query.
func (x *exchange) target() string {
	if x.dest.host == "" {
		scheme := "http"
		if x.dest.tls {
			scheme = "https"
		}
		return scheme + "://" + printable(x.r.Host, 253) + printable(x.r.URL.EscapedPath(), longestField)
	}
	return x.origin() + printable(x.action.path, longestField)
}

// end writes the entry of the exchange. Without an entry, the response is cut off.
func (x *exchange) end() {
	p := recover()
	x.stopC()
	x.handler.load.running.Add(-1)
	for _, m := range x.metered.held {
		m.release()
	}
	if x.action.body != nil {
		x.action.body.Close()
	}
	if t := x.gen.transport; t != x.handler.current.Load().transport {
		t.CloseIdleConnections() // it is not used after this
	}
	f := x.flow
	f.mu.Lock()
	delete(f.exchanges, x)
	why := x.progress.why
	x.record.Address = x.progress.address
	f.mu.Unlock()
	if cause, _ := p.(error); p != nil && !errors.Is(cause, http.ErrAbortHandler) {
		x.record.Error = fmt.Sprintf("an internal error: %v", p)
	}
	if why != "" {
		x.record.Error = why
	}
	x.record.Took = time.Since(x.started)
	x.record.Sent, x.record.Received = x.traffic.sent.Load(), x.traffic.received.Load()
	err := x.handler.records.add(x.record, x.gen)
	// Without an entry, only the refusal that reports this is answered.
	if p != nil || err != nil && x.record.Rule != policy.RuleRecord {
		panic(http.ErrAbortHandler)
	}
}
