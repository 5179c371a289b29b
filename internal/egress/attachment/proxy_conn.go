package attachment

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/egress"
)

const (
	// firstByteIdle is how long a program may take to send the first byte.
	firstByteIdle = 10 * time.Second
	// maxStreamQuery is the maximum length of a DNS query on a stream. The length comes first, so
	// its first byte is never that of an HTTP request or of TLS.
	maxStreamQuery = 4096
)

func proxyPort() netip.AddrPort { return netip.AddrPortFrom(egress.Gateway, egress.ProxyPort) }

// proxyConn is one connection to the socket. It embeds net.Conn and not *net.UnixConn, whose other
// methods would skip the first byte.
type proxyConn struct {
	net.Conn
	unix   *net.UnixConn
	proxy  *proxy
	number uint16
	waits  bool // proxy.mu must be held
	first  []byte
	once   sync.Once
}

// serve determines the protocol of a stream by its first byte.
func (s *proxyConn) serve() {
	first := make([]byte, 1)
	if s.SetReadDeadline(time.Now().Add(firstByteIdle)) != nil {
		_ = s.Close()
		return
	}
	if _, err := io.ReadFull(s.Conn, first); err != nil || s.SetReadDeadline(time.Time{}) != nil {
		_ = s.Close()
		return
	}
	s.first = first
	p := s.proxy
	switch {
	case first[0] <= maxStreamQuery>>8:
		p.decided(s)
		serveNames(s, p.handler, p.queries, maxStreamQuery, &p.names)
	case 'A' <= first[0] && first[0] <= 'Z':
		f := &Flow{attempt: s, source: netip.AddrPortFrom(egress.SandboxPrefix.Addr(), s.number), dst: proxyPort()}
		defer f.Refuse()
		p.handler.TCP(f)
	default:
		_ = s.Close()
		p.drop()
	}
}

func (s *proxyConn) accept() (net.Conn, error) {
	s.proxy.decided(s)
	return s, nil
}

func (s *proxyConn) refuse() { _ = s.Close() }

// Read implements net.Conn.
func (s *proxyConn) Read(b []byte) (int, error) {
	if len(s.first) == 0 || len(b) == 0 {
		return s.Conn.Read(b)
	}
	n := copy(b, s.first)
	s.first = nil
	return n, nil
}

// CloseRead closes one direction.
func (s *proxyConn) CloseRead() error { return s.unix.CloseRead() }

// CloseWrite closes one direction: the program reads EOF.
func (s *proxyConn) CloseWrite() error { return s.unix.CloseWrite() }

// Close implements net.Conn.
func (s *proxyConn) Close() error {
	s.once.Do(func() {
		_ = s.Conn.Close()
		s.proxy.ended(s)
	})
	return nil
}

// Reset ends the stream at once. A Unix socket has no reset, so a program that has sent everything
// reads EOF, and only HTTP and TLS reveal that data is missing.
func (s *proxyConn) Reset() error { return s.Close() }
