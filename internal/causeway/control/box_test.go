package control

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/crannog/crannog/internal/causeway"
)

// testBox is the network of a sandbox: gVisor's, on the link's other end.
type testBox struct {
	stack *stack.Stack
	fd    int
}

func newTestBox(t testing.TB, end *os.File) *testBox {
	t.Helper()
	fd, err := unix.FcntlInt(end.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	end.Close()
	b := &testBox{fd: fd, stack: stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})}
	t.Cleanup(b.close)
	card, err := fdbased.New(&fdbased.Options{
		FDs: []int{fd}, MTU: causeway.MTU, RXChecksumOffload: true, TXChecksumOffload: true, ClosedFunc: func(tcpip.Error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.stack.CreateNIC(1, card); err != nil {
		t.Fatal(err)
	}
	own := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddrFrom4(causeway.Box.Addr().As4()).WithPrefix()}
	if err := b.stack.AddProtocolAddress(1, own, stack.AddressProperties{}); err != nil {
		t.Fatal(err)
	}
	b.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1, Gateway: tcpip.AddrFrom4(causeway.Gateway.As4())}})
	return b
}

// close is the end of the sandbox. It may be called more than once.
func (b *testBox) close() {
	if b.fd < 0 {
		return
	}
	b.stack.Close()
	_ = unix.Shutdown(b.fd, unix.SHUT_RDWR)
	b.stack.Wait()
	unix.Close(b.fd)
	b.fd = -1
}

func fullAddress(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFrom4(a.Addr().As4()), Port: a.Port()}
}

// lookup asks the gateway for a name.
func (b *testBox) lookup(name string) (netip.Addr, error) {
	server := fullAddress(netip.AddrPortFrom(causeway.Gateway, 53))
	c, err := gonet.DialUDP(b.stack, nil, &server, ipv4.ProtocolNumber)
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
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
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

// dial connects to a name as a program inside does.
func (b *testBox) dial(name string, port uint16) (*gonet.TCPConn, error) {
	a, err := b.lookup(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return gonet.DialContextTCP(ctx, b.stack, fullAddress(netip.AddrPortFrom(a, port)), ipv4.ProtocolNumber)
}

// get makes one request and returns its status.
func (b *testBox) get(path string) (int, error) { return b.send(http.MethodGet, path, nil) }

func (b *testBox) send(method, path string, body io.Reader) (int, error) {
	c, err := b.dial("api.test", 80)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
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
