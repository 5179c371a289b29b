package attachment

import (
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/crannog/crannog/internal/egress"
)

// deliver gives the stack a copy of a frame.
func (p *port) deliver(frame []byte) {
	d := p.dispatcher.Load()
	if d == nil {
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
		Payload: buffer.MakeWithView(buffer.NewViewWithData(frame)),
	})
	defer pkt.DecRef()
	(*d).DeliverNetworkPacket(ipv4.ProtocolNumber, pkt)
}

// WritePackets implements stack.LinkWriter. It never blocks, because the stack calls it with locks
// that Close and deadlines need.
func (p *port) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pkt := range list.AsSlice() {
		if p.closed {
			return 0, &tcpip.ErrClosedForSend{}
		}
		p.put(pkt.AsSlices())
	}
	return list.Len(), nil
}

// The remaining methods of stack.LinkEndpoint. This endpoint has no address and adds no header.

func (p *port) MTU() uint32                             { return egress.MTU }
func (p *port) SetMTU(uint32)                           {}
func (p *port) MaxHeaderLength() uint16                 { return 0 }
func (p *port) LinkAddress() tcpip.LinkAddress          { return "" }
func (p *port) SetLinkAddress(tcpip.LinkAddress)        {}
func (p *port) IsAttached() bool                        { return p.dispatcher.Load() != nil }
func (p *port) Wait()                                   {}
func (p *port) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (p *port) AddHeader(*stack.PacketBuffer)           {}
func (p *port) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (p *port) Close()                                  {}
func (p *port) SetOnCloseAction(func())                 {}

// Capabilities disables checksums if both ends are processes of one machine. A kernel as the peer
// drops packets without checksums.
func (p *port) Capabilities() stack.LinkEndpointCapabilities {
	if p.summed {
		return stack.CapabilityNone
	}
	return stack.CapabilityTXChecksumOffload | stack.CapabilityRXChecksumOffload
}

func (p *port) Attach(d stack.NetworkDispatcher) {
	if d == nil {
		p.dispatcher.Store(nil)
		return
	}
	p.dispatcher.Store(&d)
}
