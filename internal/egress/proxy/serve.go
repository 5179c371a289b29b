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
	box   *Handler
	flow  *flow
	gen   *generation // the policy that judged it last
	w     http.ResponseWriter
	r     *http.Request
	began time.Time
	ctx   context.Context
	stopC context.CancelFunc

	host    string // canonical, or an address
	port    int
	tls     bool
	method  string
	path    string // escaped
	upgrade bool   // it became a WebSocket
	// readings are all ways to read it, the request line first.
	readings []reading
	formRead bool // they include the fields of a form, or it is inspected while it is passed on

	conn     policy.Connection
	decision egress.Decision
	counts   []*meter // of its rules
	held     []*meter // in which it holds places
	paid     bool     // counted as a request
	secrets  []*sealed
	body     *heldBody  // if it was read to its end
	push     *push      // if it is one
	git      gitRequest // what it certainly is to git

	// Fields of a question about it.
	kind    string
	summary string
	extra   map[string]string

	record         egress.Record
	sent, received atomic.Int64

	// Guarded by flow.mu.
	known   bool // host, method and path are set
	out     bool // it may have been sent
	granted string
	fetches string // the repository, if that is why a write needed no permission
	why     string // it was stopped
	close   func() // ends what a cancelled context does not
	address string // of the upstream
}

// serve is called for each request of the sandbox.
func (b *Handler) serve(w http.ResponseWriter, r *http.Request) {
	f, _ := r.Context().Value(flowKey{}).(*flow)
	if f == nil {
		panic(http.ErrAbortHandler) // not a connection of ours
	}
	f.judged.Add(1)
	x := f.exchange(w, r)
	if f.proxy && r.Method == http.MethodConnect {
		x.connect()
		return
	}
	running := b.running.Add(1)
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
		stop = x.judge()
	}
	switch {
	case stop != nil && x.push != nil && x.push.bound:
		x.refusePush(stop)
		return
	case stop == nil:
		stop = x.forward()
	}
	if stop != nil {
		x.refuse(stop)
	}
}

func (f *flow) exchange(w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{box: f.box, flow: f, w: w, r: r, began: time.Now(), gen: f.box.current.Load()}
	x.ctx, x.stopC = context.WithCancel(r.Context())
	x.record = egress.Record{Time: x.began, Kind: egress.KindHTTP, Method: r.Method, Host: f.host, Port: f.port}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exchanges[x] = struct{}{}
	f.recorded = true
	if f.dead {
		x.stop(f.why)
	}
	return x
}

// stop ends an exchange. flow.mu must be held.
func (x *exchange) stop(why string) {
	if x.why == "" {
		x.why = why
	}
	x.stopC()
	if x.close != nil {
		// Closing TLS may wait for its peer, and the lock is held here.
		go x.close()
	}
}

// onStop sets what else ends the exchange. It returns false if the exchange has ended.
func (x *exchange) onStop(do func()) bool {
	x.flow.mu.Lock()
	defer x.flow.mu.Unlock()
	x.close = do
	return x.why == ""
}

// fits reports whether a new policy still allows an exchange. flow.mu must be held.
func (x *exchange) fits(g *generation) bool {
	if !x.known {
		return true // it will be judged by g
	}
	if g.policy.Connect(x.host, x.port).Effect == egress.Deny {
		return false
	}
	d, _ := x.weigh(g)
	if d.Rule == policy.RuleWrites && x.fetches != "" {
		d = g.policy.Fetch(x.host, x.fetches)
	}
	if d.Effect == egress.Deny || d.Effect == egress.Ask && x.out && x.granted != d.Rule && x.flow.granted != d.Rule {
		return false
	}
	if !x.upgrade {
		return true
	}
	// A WebSocket that was opened with a secret ends with the secret.
	for _, s := range x.secrets {
		kept := false
		for _, o := range g.secrets {
			kept = kept || o.Name == s.Name && o.place == s.place
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
	method := x.method
	if method == "" {
		method = printable(x.r.Method, 32)
	}
	if r == x.flow.refused {
		// The next try is a new connection, which is judged anew.
		x.w.Header().Set("Connection", "close")
	}
	r.write(x.w, method, x.gen.text.String(x.target()))
}

// target returns the request's destination, without its query.
func (x *exchange) target() string {
	if x.host == "" {
		scheme := "http"
		if x.tls {
			scheme = "https"
		}
		return scheme + "://" + printable(x.r.Host, 253) + printable(x.r.URL.EscapedPath(), longestField)
	}
	return x.origin() + printable(x.path, longestField)
}

// end writes the entry of the exchange. Without an entry the response is not passed on.
func (x *exchange) end() {
	p := recover()
	x.stopC()
	x.box.running.Add(-1)
	for _, m := range x.held {
		m.release()
	}
	if x.body != nil {
		x.body.Close()
	}
	if t := x.gen.transport; t != x.box.current.Load().transport {
		t.CloseIdleConnections() // it is not used after this
	}
	f := x.flow
	f.mu.Lock()
	delete(f.exchanges, x)
	why := x.why
	x.record.Address = x.address
	f.mu.Unlock()
	if cause, _ := p.(error); p != nil && !errors.Is(cause, http.ErrAbortHandler) {
		x.record.Error = fmt.Sprintf("an internal error: %v", p)
	}
	if why != "" {
		x.record.Error = why
	}
	x.record.Took = time.Since(x.began)
	x.record.Sent, x.record.Received = x.sent.Load(), x.received.Load()
	err := x.box.records.add(x.record, x.gen)
	// Without an entry nothing but that error is answered.
	if p != nil || err != nil && x.record.Rule != policy.RuleRecord {
		panic(http.ErrAbortHandler)
	}
}
