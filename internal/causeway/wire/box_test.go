package wire_test

import (
	"context"
	"net/netip"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/crannog/crannog/internal/causeway"
	"github.com/crannog/crannog/internal/causeway/wire"
)

// box is a sandbox's kernel as gVisor's is: the same stack on the same kind
// of card.
type box struct {
	stack *stack.Stack
	card  stack.LinkEndpoint
	fd    int
}

func newBox(t testing.TB, end *os.File) *box {
	t.Helper()
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	fd, err := unix.Dup(int(end.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	end.Close()
	card, err := fdbased.New(&fdbased.Options{
		FDs: []int{fd}, MTU: causeway.MTU, PacketDispatchMode: fdbased.RecvMMsg,
		RXChecksumOffload: true, TXChecksumOffload: true,
		ClosedFunc: func(tcpip.Error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CreateNIC(1, card); err != nil {
		t.Fatal(err)
	}
	address := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddrFrom4(causeway.Box.Addr().As4()).WithPrefix()}
	if err := s.AddProtocolAddress(1, address, stack.AddressProperties{}); err != nil {
		t.Fatal(err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1, Gateway: tcpip.AddrFrom4(causeway.Gateway.As4())}})
	b := &box{stack: s, card: card, fd: fd}
	t.Cleanup(b.close)
	return b
}

// close is the end of the sandbox's process.
func (b *box) close() {
	if b.fd < 0 {
		return
	}
	b.stack.Close()
	_ = unix.Shutdown(b.fd, unix.SHUT_RDWR)
	// The card reads until it sees the end, and must not read from whatever
	// gets the same number next.
	b.card.Wait()
	b.stack.TransportProtocolInstance(tcp.ProtocolNumber).Wait()
	unix.Close(b.fd)
	b.fd = -1
}

func full(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFrom4(a.Addr().As4()), Port: a.Port()}
}

func (b *box) dial(ctx context.Context, to string) (*gonet.TCPConn, error) {
	return gonet.DialContextTCP(ctx, b.stack, full(netip.MustParseAddrPort(to)), ipv4.ProtocolNumber)
}

func (b *box) mustDial(t testing.TB, to string) *gonet.TCPConn {
	t.Helper()
	c, err := b.dial(t.Context(), to)
	if err != nil {
		t.Fatalf("dial %s: %v", to, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (b *box) dialUDP(t testing.TB, to string) *gonet.UDPConn {
	t.Helper()
	remote := full(netip.MustParseAddrPort(to))
	c, err := gonet.DialUDP(b.stack, nil, &remote, ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// handler is a Handler of functions; what is nil refuses.
type handler struct {
	tcp   func(f *wire.Flow)
	names func(query []byte, max int) []byte

	mu      sync.Mutex
	dropped []string
}

func (h *handler) TCP(f *wire.Flow) {
	if h.tcp != nil {
		h.tcp(f)
	}
}

func (h *handler) Names(query []byte, max int) []byte {
	if h.names == nil {
		return nil
	}
	return h.names(query, max)
}

func (h *handler) Dropped(proto string, dst netip.AddrPort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropped = append(h.dropped, proto+" "+dst.String())
}

func (h *handler) drops() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.dropped...)
}

// open makes a link with a box at its end.
func open(t testing.TB, h wire.Handler, o wire.Options) (*wire.Link, *box) {
	t.Helper()
	l, end := openRaw(t, h, o)
	return l, newBox(t, end)
}

func openRaw(t testing.TB, h wire.Handler, o wire.Options) (*wire.Link, *os.File) {
	t.Helper()
	end, ours, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	l, err := wire.Open(ours, h, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, end
}
