package gvisor

import (
	"net"
	"os"

	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/engine"
)

// egressKinds lists the kinds of egress that gVisor's network stack supports.
var egressKinds = []engine.EgressKind{engine.EgressNone, engine.EgressPackets}

// loopback returns the network configuration of a sandbox without other interfaces.
func loopback() *boot.CreateLinksAndRoutesArgs {
	return &boot.CreateLinksAndRoutesArgs{LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink}}
}

// linked returns the network configuration of a sandbox with an attachment: one interface, whose
// packets are datagrams on the descriptor. Packets can take no other route, and there is no IPv6.
// Neither end computes checksums, because nothing between them changes the data.
func linked(end *os.File) *boot.CreateLinksAndRoutesArgs {
	prefix := egress.SandboxPrefix.Masked()
	args := loopback()
	args.FilePayload = urpc.FilePayload{Files: []*os.File{end}}
	args.FDBasedLinks = []boot.FDBasedLink{{
		Name:              "eth0",
		MTU:               egress.MTU,
		NumChannels:       1,
		TXChecksumOffload: true,
		RXChecksumOffload: true,
		Addresses:         []boot.IPWithPrefix{{Address: egress.SandboxPrefix.Addr().AsSlice(), PrefixLen: egress.SandboxPrefix.Bits()}},
		Routes:            []boot.Route{{Destination: subnet(prefix.Addr().AsSlice(), prefix.Bits())}},
	}}
	args.Defaultv4Gateway = boot.DefaultRoute{
		Name:  "eth0",
		Route: boot.Route{Destination: subnet(net.IPv4zero.To4(), 0), Gateway: egress.Gateway.AsSlice()},
	}
	return args
}

// subnet returns an IPv4 network.
func subnet(ip net.IP, bits int) net.IPNet {
	return net.IPNet{IP: ip, Mask: net.CIDRMask(bits, 32)}
}
