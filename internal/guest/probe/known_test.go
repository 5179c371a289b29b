package probe

import (
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// slowServer starts a DNS server that ignores queries until a time after the first one. It then
// answers each query with an address.
func slowServer(t *testing.T, after time.Duration) string {
	t.Helper()
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		var started time.Time
		for buf := make([]byte, 512); ; {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			if started.IsZero() {
				started = time.Now()
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || time.Since(started) < after {
				continue // invalid, or too early
			}
			m.Response = true
			m.Additionals = nil
			for _, q := range m.Questions {
				if q.Type == dnsmessage.TypeA {
					m.Answers = append(m.Answers, dnsmessage.Resource{
						Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1},
						Body:   &dnsmessage.AResource{A: [4]byte{198, 18, 0, 1}},
					})
				}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = server.WriteTo(answer, from)
			}
		}
	}()
	return server.LocalAddr().String()
}

// On a busy machine, the gateway's DNS server may need longer than one query waits. This must not
// make a sandbox with a working network fail.
func TestKnownNameMayBeAnsweredLate(t *testing.T) {
	at := slowServer(t, 2*tryTimeout)
	before := resolver
	t.Cleanup(func() { resolver = before })
	resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp4", at)
	}}
	if err := Run(t.Context(), Checks{Known: []string{"allowed.test."}}, nil); err != nil {
		t.Error(err)
	}
}
