package gvisor

import (
	"fmt"
	"time"

	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// timeWait is how long a connection that was closed is remembered, so that its late packets are not
// taken for those of another. Outside that is a minute. A sandbox's packets cross memory, or the
// datagrams between it and the causeway, and are never late; but each connection that is remembered
// takes memory of the sandbox, and a program that tries out its server makes thousands.
const timeWait = 2 * time.Second

// forgetSoon makes a kernel remember closed connections for timeWait.
func forgetSoon(k *sentry.Kernel) error {
	s, ok := k.RootNetworkNamespace().Stack().(*netstack.Stack)
	if !ok {
		return fmt.Errorf("the network is a %T", k.RootNetworkNamespace().Stack())
	}
	wait := tcpip.TCPTimeWaitTimeoutOption(timeWait)
	if err := s.Stack.SetTransportProtocolOption(tcp.ProtocolNumber, &wait); err != nil {
		return fmt.Errorf("closed connections: %v", err)
	}
	return nil
}
