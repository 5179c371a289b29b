package gvisor

import (
	"fmt"
	"time"

	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// timeWait is how long a closed connection is remembered, so that its late packets are not taken
// for those of another. Linux uses a minute. A sandbox's packets pass through memory, or as
// datagrams between the sandbox and the gateway, and are never late. But each remembered connection
// uses memory of the sandbox, and a program that tests its server creates thousands.
const timeWait = 2 * time.Second

// forgetSoon makes a kernel remember closed connections for timeWait.
func forgetSoon(k *sentry.Kernel) error {
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
