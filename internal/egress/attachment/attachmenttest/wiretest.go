// Package attachmenttest owns the far end of a link for tests and benchmarks: the
// network of a sandbox without the sandbox, on the same stack and the same
// kind of card as gVisor's kernel has.
package attachmenttest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

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

	"github.com/crannog/crannog/internal/egress"
)

// nic is the only interface.
const nic tcpip.NICID = 1

// Box is a sandbox's network.
type Box struct {
	stack *stack.Stack
	card  stack.LinkEndpoint
	fd    int
	close func() error
}

// Open puts a network on a link's end, which is closed here.
func Open(end *os.File) (*Box, error) {
	fd, err := unix.FcntlInt(end.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err := errors.Join(err, end.Close()); err != nil {
		return nil, fmt.Errorf("the sandbox's end: %w", err)
	}
	b := &Box{fd: fd, stack: stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})}
	b.close = sync.OnceValue(b.end)
	if err := b.connect(); err != nil {
		return nil, errors.Join(fmt.Errorf("the sandbox's end: %w", err), b.Close())
	}
	return b, nil
}

func (b *Box) connect() error {
	// A card that reads one packet at a time sees the link's end whenever it
	// comes. One that reads several, which gVisor's kernel has, misses an end
	// that comes while it is not asleep, and reads nothing for ever.
	card, err := fdbased.New(&fdbased.Options{
		FDs: []int{b.fd}, MTU: egress.MTU, PacketDispatchMode: fdbased.Readv, ProcessorsPerChannel: 1,
		RXChecksumOffload: true, TXChecksumOffload: true,
		ClosedFunc: func(tcpip.Error) {},
	})
	if err != nil {
		return err
	}
	b.card = card
	if err := b.stack.CreateNIC(nic, card); err != nil {
		return errors.New(err.String())
	}
	own := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddrFrom4(egress.Box.Addr().As4()).WithPrefix()}
	if err := b.stack.AddProtocolAddress(nic, own, stack.AddressProperties{}); err != nil {
		return errors.New(err.String())
	}
	b.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic, Gateway: tcpip.AddrFrom4(egress.Gateway.As4())}})
	return nil
}

// Close is the end of the sandbox. It may be called more than once.
func (b *Box) Close() error { return b.close() }

func (b *Box) end() error {
	b.stack.Close()
	err := b.Hangup()
	// The card reads until it sees the end, and must not read from whatever
	// gets the same number next. It is waited for before the stack, which
	// waits for it with its lock held: a late segment, for whose answer the
	// lock is taken, would hold up both for ever.
	if b.card != nil {
		b.card.Wait()
	}
	b.stack.Wait()
	return errors.Join(err, unix.Close(b.fd))
}

// Hangup ends the link as a kernel's death does, without closing it properly. Close
// must still be called.
func (b *Box) Hangup() error { return unix.Shutdown(b.fd, unix.SHUT_RDWR) }

// Segments is how many TCP segments have come.
func (b *Box) Segments() uint64 { return b.stack.Stats().TCP.ValidSegmentsReceived.Value() }

// Dial connects to an address.
func (b *Box) Dial(ctx context.Context, to netip.AddrPort) (*gonet.TCPConn, error) {
	return gonet.DialContextTCP(ctx, b.stack, full(to), ipv4.ProtocolNumber)
}

// DialUDP makes a socket that sends to an address.
func (b *Box) DialUDP(to netip.AddrPort) (*gonet.UDPConn, error) {
	remote := full(to)
	return gonet.DialUDP(b.stack, nil, &remote, ipv4.ProtocolNumber)
}

func full(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom4(a.Addr().As4()), Port: a.Port()}
}
