package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"

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

// netStack is the network of a sandbox without the sandbox: the stack that
// gVisor has, on the link's other end, in this process. 256 boxes would
// measure the machine's memory, and not the causeway's.
type netStack struct {
	stack  *stack.Stack
	fd     int
	client *http.Client
}

func openStack(end *os.File, roots []byte) (*netStack, error) {
	fd, err := unix.FcntlInt(end.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err := errors.Join(err, end.Close()); err != nil {
		return nil, err
	}
	n := &netStack{fd: fd, stack: stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})}
	card, err := fdbased.New(&fdbased.Options{
		FDs: []int{fd}, MTU: causeway.MTU, RXChecksumOffload: true, TXChecksumOffload: true, ClosedFunc: func(tcpip.Error) {},
	})
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	if err := n.stack.CreateNIC(1, card); err != nil {
		return nil, errors.New(err.String())
	}
	own := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddrFrom4(causeway.Box.Addr().As4()).WithPrefix()}
	if err := n.stack.AddProtocolAddress(1, own, stack.AddressProperties{}); err != nil {
		return nil, errors.New(err.String())
	}
	n.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1, Gateway: tcpip.AddrFrom4(causeway.Gateway.As4())}})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	n.client = &http.Client{Transport: &http.Transport{DialContext: n.dial, TLSClientConfig: &tls.Config{RootCAs: pool}}}
	return n, nil
}

func (n *netStack) close() error {
	n.client.CloseIdleConnections()
	n.stack.Close()
	err := unix.Shutdown(n.fd, unix.SHUT_RDWR)
	n.stack.Wait()
	return errors.Join(err, unix.Close(n.fd))
}

func at(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFrom4(a.Addr().As4()), Port: a.Port()}
}

// dial looks a name up at the gateway and connects, as a program inside does.
func (n *netStack) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	names := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		server := at(netip.AddrPortFrom(causeway.Gateway, 53))
		return gonet.DialUDP(n.stack, nil, &server, ipv4.ProtocolNumber)
	}}
	found, err := names.LookupNetIP(ctx, "ip4", host)
	if err != nil {
		return nil, err
	}
	return gonet.DialContextTCP(ctx, n.stack, at(netip.AddrPortFrom(found[0].Unmap(), 443)), ipv4.ProtocolNumber)
}
