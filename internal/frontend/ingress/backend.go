package ingress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// errGone is the cause with which requests to an ended sandbox are cancelled.
var errGone = errors.New("the sandbox has ended")

// codePortClosed is the engine's code for a port without a listener.
const codePortClosed = "port_closed"

// A program that was just started may not listen yet, so dialling its port is retried.
const (
	dialTries    = 5
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 400 * time.Millisecond
)

// Idle connections to the guest are reused for a long time. Those to programs are closed early: a
// server that serves one connection at a time is blocked by an idle one, and servers commonly close
// idle connections after five seconds, which a request must not run into.
const (
	guestIdle   = 90 * time.Second
	programIdle = 2 * time.Second
)

// backend contains the connections into one sandbox, by port. It ends with the sandbox.
type backend struct {
	id      string
	gone    <-chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	guest   *http.Transport
	program *http.Transport
}

// backend returns the backend of a live sandbox, and creates it for the first request.
func (p *Proxy) backend(id string) (*backend, bool) {
	gone := p.Traffic.Gone(id)
	if gone == nil {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false
	}
	// A sandbox can be resumed under the same ID, and then has another channel.
	if b := p.backends[id]; b != nil && b.gone == gone {
		return b, true
	}
	b := newBackend(p.Traffic, id, gone)
	if old := p.backends[id]; old != nil {
		old.close()
	}
	p.backends[id] = b
	go p.watch(b)
	return b, true
}

// watch drops the backend when its sandbox ends.
func (p *Proxy) watch(b *backend) {
	select {
	case <-b.gone:
	case <-b.ctx.Done():
	}
	p.mu.Lock()
	if p.backends[b.id] == b {
		delete(p.backends, b.id)
	}
	p.mu.Unlock()
	b.close()
}

func newBackend(traffic Traffic, id string, gone <-chan struct{}) *backend {
	b := &backend{id: id, gone: gone}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	dial := func(ctx context.Context, tries int, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			return nil, err
		}
		return dialRetry(ctx, tries, func() (net.Conn, error) { return traffic.Dial(ctx, id, n) })
	}
	b.guest = newTransport(guestIdle, func(ctx context.Context, _, address string) (net.Conn, error) {
		return dial(ctx, 1, address)
	})
	b.program = newTransport(programIdle, func(ctx context.Context, _, address string) (net.Conn, error) {
		return dial(ctx, dialTries, address)
	})
	return b
}

// newTransport returns a transport that passes requests on unchanged: it does not request
// compression, uses no proxy of the host's environment and does not limit the time of an answer.
func newTransport(idle time.Duration, dial func(context.Context, string, string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext:           dial,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   16,
		MaxIdleConns:          64,
		IdleConnTimeout:       idle,
		ExpectContinueTimeout: time.Second,
		// The programs inside are not trusted, so the size of their headers is bounded.
		MaxResponseHeaderBytes: 1 << 20,
		WriteBufferSize:        32 << 10,
		ReadBufferSize:         32 << 10,
	}
}

func dialRetry(ctx context.Context, tries int, dial func() (net.Conn, error)) (net.Conn, error) {
	wait := firstBackoff
	for {
		conn, err := dial()
		tries--
		if err == nil || tries <= 0 || fault.CodeOf(err) != codePortClosed {
			return conn, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		case <-timer.C:
		}
		wait = min(2*wait, maxBackoff)
	}
}

// hasEnded reports whether the sandbox has ended. It returns true as soon as the service has
// signalled the end, before other code of this package notices it.
func (b *backend) hasEnded() bool {
	select {
	case <-b.gone:
		return true
	default:
		return b.ctx.Err() != nil
	}
}

// close closes open and idle connections. It may be called twice.
func (b *backend) close() {
	b.cancel()
	b.guest.CloseIdleConnections()
	b.program.CloseIdleConnections()
}

// roundTripper sends each request through the transport of its sandbox.
type roundTripper struct{}

func (roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	t := tripOf(r)
	if t == nil {
		return nil, errors.New("a request without a target reached the transport")
	}
	if t.port == guestboot.Port || t.port == guestboot.InterpreterPort {
		return t.back.guest.RoundTrip(r)
	}
	return t.back.program.RoundTrip(r)
}
