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
	// nic is the only interface of a link's stack.
	nic tcpip.NICID = 1

	// receiveWindow and sendBuffer bound the bytes of one connection that
	// wait in either direction. A link's round trip is a tenth of a
	// millisecond, so that they fill it several times over.
	receiveWindow = 512 << 10
	sendBuffer    = 512 << 10
	// crowdedBuffer is what each gets where a sandbox has many connections:
	// the memory is of a process that all sandboxes share.
	crowdedBuffer = 128 << 10
)

// newStack makes a stack that speaks IPv4 and TCP and has every address: a
// connection to any of them ends in it. It knows neither UDP nor ICMP, which
// never reach it, and it forwards nothing.
func newStack(p *port) (*stack.Stack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: receiveWindow, Max: receiveWindow}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: sendBuffer, Max: sendBuffer}
	// A window that grows by itself would grow past what is meant.
	moderate := tcpip.TCPModerateReceiveBufferOption(false)
	// The peer is one machine on a link that loses nothing and keeps order:
	// there is no late segment to wait for.
	wait := tcpip.TCPTimeWaitTimeoutOption(time.Millisecond)
	// A sandbox that never answers or never closes is given up soon.
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
