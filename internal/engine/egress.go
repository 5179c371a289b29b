package engine

import (
	"context"
	"os"
	"slices"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
)

// EgressKind names how a sandbox is connected to the egress gateway.
type EgressKind = egress.AttachmentKind

// Kinds of egress.
const (
	EgressNone     = egress.None
	EgressPackets  = egress.Packets
	EgressTap      = egress.Tap
	EgressEthernet = egress.Ethernet
	EgressProxy    = egress.Proxy
)

// Egress is the sandbox's end of its network attachment. The zero value means that the sandbox has
// only loopback.
type Egress struct {
	// Kind is one of the kinds that the engine declares in Info.
	Kind EgressKind
	// End is the sandbox's end. The engine passes a copy to the sandbox. The caller closes its own
	// after Create, so that only the sandbox holds the end.
	End *os.File
	// Attach is used instead of End for a kind whose ends the engine makes: a Tap, whose device is
	// made in the sandbox's network namespace, or the socket of a Proxy. Create calls Attach once with the gateway's end, before the guest
	// runs. The guest gets the configuration that Attach returns instead of the one in Spec.Boot.
	// The engine owns the end and closes it after the call.
	Attach func(ctx context.Context, end *os.File) (config []byte, err error)
}

// Packets returns the egress of kind EgressPackets over a socket.
func Packets(end *os.File) Egress { return Egress{Kind: EgressPackets, End: end} }

// Connected reports whether the sandbox has more than loopback.
func (e Egress) Connected() bool { return e.End != nil || e.Attach != nil }

// Check refuses an egress that an engine with these kinds cannot serve. It also refuses an end
// without a kind, because the engine would have to guess the meaning of its bytes.
func (e Egress) Check(kinds []EgressKind) error {
	kind := e.Kind
	if kind == "" && e.End == nil {
		kind = EgressNone
	}
	if connects := kind != EgressNone; connects != e.Connected() {
		problem := "has no end"
		if e.Connected() {
			problem = "has an end"
		}
		return fault.Newf(fault.Invalid, "egress_invalid", "an egress of the kind %q %s", kind, problem)
	}
	if !slices.Contains(kinds, kind) {
		return fault.Newf(fault.Unsupported, "egress_unsupported", "the engine cannot connect a sandbox by the kind %q", kind)
	}
	if attaches := e.Attach != nil; attaches != kind.MadeByEngine() || attaches && e.End != nil {
		return fault.Newf(fault.Invalid, "egress_invalid", "an egress of the kind %q has the wrong fields: only a tap and a proxy have the function Attach, and then no end", kind)
	}
	return nil
}
