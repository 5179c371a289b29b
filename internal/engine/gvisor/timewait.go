package gvisor

import (
	"fmt"
	"time"

	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// timeWait is how long a closed connection is remembered, so that its late packets are not mistaken
// for packets of a new connection. Linux uses a minute. A sandbox's packets pass through memory and
// are never late. But each remembered connection uses memory of the sandbox, and a program that
// tests its server creates thousands.
const timeWait = 2 * time.Second

// setTimeWait makes a kernel forget closed connections after timeWait.
func setTimeWait(k *sentry.Kernel) error {
	s, ok := k.RootNetworkNamespace().Stack().(*netstack.Stack)
	if !ok {
		return fmt.Errorf("the network has the unknown type %T", k.RootNetworkNamespace().Stack())
	}
	wait := tcpip.TCPTimeWaitTimeoutOption(timeWait)
	if err := s.Stack.SetTransportProtocolOption(tcp.ProtocolNumber, &wait); err != nil {
		return fmt.Errorf("closed connections: %v", err)
	}
	return nil
}
