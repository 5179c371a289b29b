// Package attachmenttest owns the sandbox's end of an attachment for tests and benchmarks: a
// sandbox's network without the sandbox, with the network stack and link endpoint of gVisor's
// kernel.
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

// Peer is a sandbox's network.
type Peer struct {
	stack *stack.Stack
	card  stack.LinkEndpoint
	fd    int
	close func() error
}

// Open starts a network on an attachment's end, and takes ownership of it.
func Open(end *os.File) (*Peer, error) {
	fd, err := unix.FcntlInt(end.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err := errors.Join(err, end.Close()); err != nil {
		return nil, fmt.Errorf("the sandbox's end: %w", err)
	}
	b := &Peer{fd: fd, stack: stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})}
	b.close = sync.OnceValue(b.end)
	if err := b.connect(); err != nil {
		return nil, errors.Join(fmt.Errorf("the sandbox's end: %w", err), b.Close())
	}
	return b, nil
}

func (b *Peer) connect() error {
	// Read one packet at a time, because that always detects the end of the attachment. gVisor's
	// kernel reads several packets at a time. That mode misses an end that arrives while it is not
	// blocked, and then waits for ever.
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
	address := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddrFrom4(egress.SandboxPrefix.Addr().As4()).WithPrefix()}
	if err := b.stack.AddProtocolAddress(nic, address, stack.AddressProperties{}); err != nil {
		return errors.New(err.String())
	}
	b.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic, Gateway: tcpip.AddrFrom4(egress.Gateway.As4())}})
	return nil
}

// Close ends the sandbox. It may be called more than once.
func (b *Peer) Close() error { return b.close() }

func (b *Peer) end() error {
	b.stack.Close()
	err := b.Hangup()
	// Wait for the link endpoint, which reads until the end of the attachment. Otherwise it could
	// read from another file that gets the same descriptor. Wait for the endpoint before the stack,
	// because the stack's Wait holds a lock: a late segment that needs the lock would block both
	// for ever.
	if b.card != nil {
		b.card.Wait()
	}
	b.stack.Wait()
	return errors.Join(err, unix.Close(b.fd))
}

// Hangup ends the attachment like a killed kernel, without closing it properly. Close must still be
// called.
func (b *Peer) Hangup() error { return unix.Shutdown(b.fd, unix.SHUT_RDWR) }

// Segments returns the number of received TCP segments.
func (b *Peer) Segments() uint64 { return b.stack.Stats().TCP.ValidSegmentsReceived.Value() }

// Dial connects to an address.
func (b *Peer) Dial(ctx context.Context, to netip.AddrPort) (*gonet.TCPConn, error) {
	return gonet.DialContextTCP(ctx, b.stack, full(to), ipv4.ProtocolNumber)
}

// DialUDP returns a socket that sends to an address.
func (b *Peer) DialUDP(to netip.AddrPort) (*gonet.UDPConn, error) {
	remote := full(to)
	return gonet.DialUDP(b.stack, nil, &remote, ipv4.ProtocolNumber)
}

func full(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom4(a.Addr().As4()), Port: a.Port()}
}
