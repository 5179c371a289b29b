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

// Egress is a sandbox's end of its network attachment. The zero value is loopback
// and nothing else.
type Egress struct {
	// Kind is one of the kinds that the engine declares in Info.
	Kind EgressKind
	// End is the sandbox's end. The engine hands on a copy: the caller keeps its own,
	// and closes it after Create so that the sandbox's end is only the sandbox's.
	End *os.File
	// Attach takes the place of End for a kind whose ends are made where the sandbox is, as those
	// of a Tap. Create calls it once with the gateway's end, before the guest runs, and gives the
	// guest the configuration that it returns instead of that of Spec.Boot. The engine owns the
	// end, and closes it after the call.
	Attach func(ctx context.Context, end *os.File) (config []byte, err error)
}

// Packets returns the egress of kind EgressPackets over a socket.
func Packets(end *os.File) Egress { return Egress{Kind: EgressPackets, End: end} }

// Connected reports whether there is more than loopback.
func (e Egress) Connected() bool { return e.End != nil || e.Attach != nil }

// Check refuses an egress that an engine with these kinds cannot serve. An end without a kind is
// refused as well: the engine would have to guess what its bytes mean.
func (e Egress) Check(kinds []EgressKind) error {
	kind := e.Kind
	if kind == "" && e.End == nil {
		kind = EgressNone
	}
	if connects := kind != EgressNone; connects != e.Connected() {
		what := "has no end"
		if e.Connected() {
			what = "has an end"
		}
		return fault.Newf(fault.Invalid, "egress_invalid", "an egress of the kind %q %s", kind, what)
	}
	if !slices.Contains(kinds, kind) {
		return fault.Newf(fault.Unsupported, "egress_unsupported", "the engine cannot connect a sandbox by the kind %q", kind)
	}
	if made := e.Attach != nil; made != (kind == EgressTap) || made && e.End != nil {
		return fault.Newf(fault.Invalid, "egress_invalid", "an egress of the kind %q has an end that is made elsewhere", kind)
	}
	return nil
}
