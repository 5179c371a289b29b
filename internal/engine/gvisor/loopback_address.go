package gvisor

import (
	gocontext "context"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket/netlink"
	"gvisor.dev/gvisor/pkg/sentry/socket/netlink/nlmsg"
	"gvisor.dev/gvisor/pkg/sentry/socket/netlink/route"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/syserr"
)

// On Linux, the loopback interface of a new network namespace has no address until a program adds
// one. On gVisor it has its addresses at once. Without the correction in this file, bubblewrap
// would fail in a new network namespace, because it adds 127.0.0.1 and exits on an error.

// netlinkProtocols holds gVisor's constructors of netlink sockets.
//
//go:linkname netlinkProtocols gvisor.dev/gvisor/pkg/sentry/socket/netlink.protocols
var netlinkProtocols map[int]netlink.Provider

// allowLoopbackAddress lets programs add an address to the loopback interface that it already has.
// It must be called before programs run.
func allowLoopbackAddress() {
	netlinkProtocols[linux.NETLINK_ROUTE] = func(*sentry.Task) (netlink.Protocol, *syserr.Error) { return &routes{}, nil }
}

// originalRoutes is an alias for embedding, because a field must not have the name of a method.
type originalRoutes = route.Protocol

// routes handles the messages about interfaces, addresses and routes.
type routes struct{ originalRoutes }

var _ netlink.RouteProtocol = (*routes)(nil)

// ProcessMessage implements netlink.Protocol.
func (r *routes) ProcessMessage(ctx context.Context, s *netlink.Socket, msg *nlmsg.Message, ms *nlmsg.MessageSet) *syserr.Error {
	err := r.originalRoutes.ProcessMessage(ctx, s, msg, ms)
	if err == syserr.ErrExists && msg.Header().Type == linux.RTM_NEWADDR {
		var address linux.InterfaceAddrMessage
		if _, ok := msg.GetData(&address); ok && address.Index == linux.LOOPBACK_IFINDEX {
			return nil
		}
	}
	return err
}

func init() { state.Register((*routes)(nil)) }

// StateTypeName implements state.Type.
func (r *routes) StateTypeName() string { return "crannog/gvisor.routes" }

// StateFields implements state.Type. A protocol has no state, only a name by which saved sockets
// refer to it.
func (r *routes) StateFields() []string { return nil }

// StateSave implements state.SaverLoader.
func (r *routes) StateSave(state.Sink) {}

// StateLoad implements state.SaverLoader.
func (r *routes) StateLoad(gocontext.Context, state.Source) {}
