package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/egress/policy"
)

// alertName is the TLS alert "unrecognized_name", from which a program can tell that the server
// name was wrong.
var alertName = []byte{21, 3, 3, 0, 2, 2, 112}

// flowOf returns the flow of a connection of the server.
func flowOf(c net.Conn) *flow {
	switch c := c.(type) {
	case *client:
		return c.flow
	case *tls.Conn:
		return flowOf(c.NetConn())
	default:
		return nil
	}
}

// secure decides about a TLS connection by its ClientHello, and splices or decrypts it.
func (f *flow) secure(c *client, g *generation, conn policy.Connection, m *meter) (handed bool) {
	hello, size, err := readHello(c)
	if err != nil {
		return f.drop(floor(0, "hello", policy.RuleProtocol, err.Error()), "")
	}
	if stop := f.checkServerName(hello); stop != nil {
		// The connection is closed in any case.
		_, _ = c.Write(alertName)
		return f.drop(stop, "")
	}
	f.mu.Lock()
	f.dest.tls = true
	f.mu.Unlock()
	if stop := f.ask(g, conn); stop != nil {
		// Decrypt the connection only to answer, because a closed connection would give the program
		// no reason.
		f.refuseAll(stop)
		return f.decrypt(c)
	}
	// A second, encrypted hello may name another host, and a dummy looks the same. It has no effect
	// if the connection is decrypted.
	if conn.Inspect || g.bound[location{f.dest.host, f.dest.port}] || hello.ech {
		return f.decrypt(c)
	}
	if stop := f.splice(c, conn, m, size); stop != nil {
		f.refuseAll(stop)
		return f.decrypt(c)
	}
	return false
}

func readHello(c *client) (hello, int, error) {
	want := recordHead
	for {
		head, err := c.peek(want)
		if err != nil {
			return hello{}, 0, errors.New("the TLS hello did not arrive: " + err.Error())
		}
		h, size, err := parseHello(head)
		if !errors.Is(err, errShort) {
			return h, size, err
		}
		want = len(head) + 1
	}
}

// checkServerName checks that a hello names the host of the connection. A server of many hosts
// would answer for another name.
func (f *flow) checkServerName(h hello) *refusal {
	if h.name == "" {
		return floor(0, "sni", policy.RuleSNI, "the TLS hello names no host, and the connection goes to "+f.dest.host)
	}
	// In TLS, names do not end in a dot. A server that gets one may answer for its default host.
	if name, err := names.Canonical(h.name); err != nil || name != f.dest.host || strings.HasSuffix(h.name, ".") {
		return floor(0, "sni", policy.RuleSNI, "the TLS hello names "+printable(h.name, 253)+", and the connection goes to "+f.dest.host)
	}
	return nil
}

var errIdentity = errors.New("the server name is not the connection's")

// serverTLS returns the TLS configuration for decrypting a connection, for its one name.
func (b *Handler) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		// This is checked in every handshake, including that of a resumed session, which needs no
		// certificate.
		GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			f := flowOf(i.Conn)
			if f == nil || f.checkServerName(hello{name: i.ServerName}) != nil {
				return nil, errIdentity
			}
			return nil, nil
		},
		GetCertificate: func(i *tls.ClientHelloInfo) (*tls.Certificate, error) {
			f := flowOf(i.Conn)
			if f == nil {
				return nil, errIdentity
			}
			return b.front.ca.Leaf(f.dest.host)
		},
	}
}

// decrypt terminates the sandbox's TLS and passes the connection to the HTTP server.
func (f *flow) decrypt(c *client) (handed bool) {
	t := tls.Server(c, f.handler.front.tls)
	ctx, cancel := context.WithTimeout(f.ctx, f.handler.limits.Handshake)
	defer cancel()
	// Waiting for the approval may have used up the time for the hello.
	if err := c.SetReadDeadline(time.Now().Add(f.handler.limits.Handshake)); err != nil {
		return f.drop(nil, err.Error())
	}
	if err := t.HandshakeContext(ctx); err != nil {
		failure := "TLS handshake: " + err.Error()
		if stop := f.refused; stop != nil {
			return f.drop(stop, failure)
		}
		return f.drop(&refusal{decision: egress.Decision{
			Effect: egress.Allow, Rule: "connection", Reason: "the TLS handshake with the program failed; it may not trust the sandbox's certificates",
		}}, failure)
	}
	return f.hand(c, t)
}
