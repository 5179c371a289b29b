package gateway

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// testPeer is the network of a sandbox at the other end of an attachment.
type testPeer struct{ *attachmenttest.Peer }

func newTestPeer(t testing.TB, end *os.File) *testPeer {
	t.Helper()
	b, err := attachmenttest.Open(end)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return &testPeer{b}
}

// lookup resolves a name with the gateway's DNS.
func (b *testPeer) lookup(name string) (netip.Addr, error) {
	c, err := b.DialUDP(netip.AddrPortFrom(egress.Gateway, 53))
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	query := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	packed, err := query.Pack()
	if err != nil {
		return netip.Addr{}, err
	}
	_ = c.SetDeadline(hosttest.Deadline())
	if _, err := c.Write(packed); err != nil {
		return netip.Addr{}, err
	}
	reply := make([]byte, 512)
	n, err := c.Read(reply)
	if err != nil {
		return netip.Addr{}, err
	}
	var m dnsmessage.Message
	if err := m.Unpack(reply[:n]); err != nil {
		return netip.Addr{}, err
	}
	for _, a := range m.Answers {
		if a, ok := a.Body.(*dnsmessage.AResource); ok {
			return netip.AddrFrom4(a.A), nil
		}
	}
	return netip.Addr{}, errors.New("no address: " + m.RCode.String())
}

// dial connects to a host as a program in the sandbox does.
func (b *testPeer) dial(name string, port uint16) (*gonet.TCPConn, error) {
	a, err := b.lookup(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	return b.Dial(ctx, netip.AddrPortFrom(a, port))
}

// get makes one request and returns its status.
func (b *testPeer) get(path string) (int, error) { return b.send(http.MethodGet, path, nil) }

func (b *testPeer) send(method, path string, body io.Reader) (int, error) {
	c, err := b.dial("api.test", 80)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(hosttest.Deadline())
	request, err := http.NewRequest(method, "http://api.test"+path, body)
	if err != nil {
		return 0, err
	}
	request.Close = true
	if err := request.Write(c); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), request)
	if err != nil {
		return 0, err
	}
	answer.Body.Close()
	return answer.StatusCode, nil
}
