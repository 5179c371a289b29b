package attachment

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// proxy is an attachment of the kind Proxy: the socket to which a sandbox without a network
// interface connects. A stream whose first byte is a capital letter is HTTP for the gateway's proxy
// port, such as CONNECT. A stream that begins with the length of a DNS query is DNS over TCP. All
// others are refused.
type proxy struct {
	handler  Handler
	options  Options
	listener *net.UnixListener

	meters
	dropped, names atomic.Uint64

	mu        sync.Mutex
	open      map[uint16]*proxyConn
	last      uint16 // the number of the last stream
	undecided int
	closed    bool

	once      sync.Once
	accepting chan struct{} // closed when no more streams are accepted
	gone      chan struct{} // closed when Close begins
	done      chan struct{}
}

// newProxy serves a listening Unix socket and takes ownership of it.
func newProxy(ours *os.File, h Handler, o Options) (*proxy, error) {
	listener, err := listenerOf(ours)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &proxy{
		handler: h, options: o.orDefault(), listener: listener, open: map[uint16]*proxyConn{},
		accepting: make(chan struct{}), gone: make(chan struct{}), done: make(chan struct{}),
	}
	p.meters = newMeters(p.options)
	go func() {
		defer close(p.accepting)
		p.accept()
		// Close waits for this goroutine.
		go p.Close()
	}()
	return p, nil
}

// listenerOf rejects everything but a listening Unix stream socket. A TCP port would give every
// user of the host access to this sandbox's secrets.
func listenerOf(ours *os.File) (*net.UnixListener, error) {
	defer ours.Close()
	raw, err := ours.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		var listens int
		if listens, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && listens == 0 {
			err = errors.New("the socket does not listen")
		}
	})
	if err := errors.Join(controlErr, err); err != nil {
		return nil, err
	}
	l, err := net.FileListener(ours)
	if err != nil {
		return nil, err
	}
	u, ok := l.(*net.UnixListener)
	if !ok || u.Addr().Network() != "unix" {
		l.Close()
		return nil, errors.New("not a Unix stream socket")
	}
	return u, nil
}

// accept accepts streams until Close. A shutdown of the engine's copy of the socket does not wake
// it, because the kernel does not report that to a non-blocking listener.
func (p *proxy) accept() {
	for {
		c, err := p.listener.AcceptUnix()
		switch {
		case err == nil:
			p.begin(c)
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOBUFS),
			errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ECONNABORTED):
			pauseReading(p.gone)
		default:
			return
		}
	}
}

// begin serves a stream if the limits allow it.
func (p *proxy) begin(c *net.UnixConn) {
	s := &proxyConn{Conn: c, unix: c, proxy: p}
	if !p.connects.Allow() || !p.take(s) {
		_ = c.Close()
		p.drop()
		return
	}
	go s.serve()
}

// take gives a stream its number, unless the limits of open or undecided streams are reached.
func (p *proxy) take(s *proxyConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.open) >= p.options.MaxConnections || p.undecided >= p.options.MaxHalfOpen {
		return false
	}
	for {
		p.last++
		if _, taken := p.open[p.last]; !taken && p.last != 0 {
			break
		}
	}
	s.number, s.waits = p.last, true
	p.open[s.number] = s
	p.undecided++
	return true
}

// drop counts a stream that is not served and reports a sample. In a flood it pauses accepting, so
// that the socket's queue fills and the programs wait.
func (p *proxy) drop() {
	p.dropped.Add(1)
	if p.reports.Allow() {
		p.handler.Dropped("proxy", proxyPort())
	}
	if !p.junk.Allow() {
		pauseReading(p.gone)
	}
}

// decided releases a stream's slot among those that wait for a decision.
func (p *proxy) decided(s *proxyConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decidedLocked(s)
}

// decidedLocked is decided with mu held.
func (p *proxy) decidedLocked(s *proxyConn) {
	if s.waits {
		s.waits = false
		p.undecided--
	}
}

// ended releases everything that a stream holds.
func (p *proxy) ended(s *proxyConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decidedLocked(s)
	delete(p.open, s.number)
}

// Close implements Attachment.
func (p *proxy) Close() error {
	p.once.Do(func() {
		close(p.gone)
		p.mu.Lock()
		p.closed = true
		open := make([]*proxyConn, 0, len(p.open))
		for _, s := range p.open {
			open = append(open, s)
		}
		p.mu.Unlock()
		_ = p.listener.Close()
		for _, s := range open {
			_ = s.Reset()
		}
		<-p.accepting
		close(p.done)
	})
	<-p.done
	return nil
}

// Done implements Attachment.
func (p *proxy) Done() <-chan struct{} { return p.done }

// Counts implements Attachment. A proxy has no frames.
func (p *proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Counts{Dropped: p.dropped.Load(), Names: p.names.Load(), Connections: len(p.open)}
}
