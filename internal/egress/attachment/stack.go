package attachment

import (
	"fmt"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	// nic is the only interface of an attachment's stack.
	nic tcpip.NICID = 1

	// receiveWindow and sendBuffer limit the bytes of one connection that are queued in either
	// direction. The round trip takes a tenth of a millisecond, so they are large enough for full
	// speed.
	receiveWindow = 512 << 10
	sendBuffer    = 512 << 10
	// smallBuffer is the buffer size if a sandbox has many connections, because all sandboxes
	// share the process's memory.
	smallBuffer = 128 << 10
)

// newStack creates a stack for IPv4 and TCP that has every address: a connection to any address
// ends in it. It has neither UDP nor ICMP, which never reach it, and does not forward packets.
func newStack(p *port) (*stack.Stack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: receiveWindow, Max: receiveWindow}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: sendBuffer, Max: sendBuffer}
	// A window that grows automatically would exceed the limit.
	moderate := tcpip.TCPModerateReceiveBufferOption(false)
	// The peer is one machine on a connection that neither loses nor reorders packets, so there are
	// no late segments to wait for.
	wait := tcpip.TCPTimeWaitTimeoutOption(time.Millisecond)
	// Connections whose sandbox never answers or never closes are ended soon.
	linger := tcpip.TCPLingerTimeoutOption(10 * time.Second)
	retries := tcpip.TCPSynRetriesOption(2)
	for _, o := range []tcpip.SettableTransportProtocolOption{&receive, &send, &moderate, &wait, &linger, &retries} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			s.Destroy()
			return nil, fmt.Errorf("network stack: option %T: %s", o, err)
		}
	}
	for _, step := range []func() tcpip.Error{
		func() tcpip.Error { return s.CreateNIC(nic, p) },
		func() tcpip.Error { return s.SetPromiscuousMode(nic, true) },
		func() tcpip.Error { return s.SetSpoofing(nic, true) },
	} {
		if err := step(); err != nil {
			s.Destroy()
			return nil, fmt.Errorf("network stack: %s", err)
		}
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	return s, nil
}
