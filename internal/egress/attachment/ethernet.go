package attachment

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"

	"github.com/crannog/crannog/internal/egress"
)

const (
	macSize     = 6
	etherHeader = 2*macSize + 2

	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86dd
	// VLAN tags of customers and of providers.
	etherVLAN, etherProviderVLAN, etherOldProviderVLAN = 0x8100, 0x88a8, 0x9100
)

// mac is an Ethernet address.
type mac [macSize]byte

// gatewayMAC is the gateway's address at every attachment. It is locally administered and ends in
// the gateway's IPv4 address.
var gatewayMAC = func() mac {
	ip := egress.Gateway.As4()
	return mac{0x02, 0xc7, ip[0], ip[1], ip[2], ip[3]}
}()

var broadcastMAC = mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// single reports whether m is a unicast address.
func (m mac) single() bool { return m[0]&1 == 0 && m != mac{} }

// ethernet is the Ethernet side of a port. It learns the address of its one peer.
type ethernet struct {
	// peer is the source of the last valid frame. A sandbox that changes its address only
	// misdirects its own frames, because sandboxes are distinguished by attachment, not by address.
	peer atomic.Uint64
}

func (e *ethernet) learn(m mac) {
	var b [8]byte
	copy(b[2:], m[:])
	n := binary.BigEndian.Uint64(b[:])
	if e.peer.Load() != n {
		e.peer.Store(n)
	}
}

// header appends the header of a frame for the peer.
func (e *ethernet) header(to []byte, etherType uint16) []byte {
	var peer [8]byte
	binary.BigEndian.PutUint64(peer[:], e.peer.Load())
	to = append(append(to, peer[2:]...), gatewayMAC[:]...)
	return binary.BigEndian.AppendUint16(to, etherType)
}

// parseEthernet parses a frame. A valid frame comes from one interface other than the gateway, and
// is addressed to the gateway. For an ARP request, the packet's ip is the message.
func parseEthernet(frame []byte) (p packet, from mac) {
	p.protocol = "malformed"
	if len(frame) < etherHeader {
		return p, from
	}
	to := mac(frame)
	from = mac(frame[macSize:])
	body := frame[etherHeader:]
	switch etherType := binary.BigEndian.Uint16(frame[2*macSize:]); etherType {
	case etherIPv4, etherIPv6:
		if len(body) > 0 && (body[0]>>4 == 6) != (etherType == etherIPv6) {
			return p, from
		}
		p = parse(body)
	case etherARP:
		p = parseARP(body, from)
		if to == broadcastMAC {
			to = gatewayMAC // both are usual
		}
	case etherVLAN, etherProviderVLAN, etherOldProviderVLAN:
		p.protocol = "vlan"
	default:
		p.protocol = "ethernet"
	}
	if p.verdict == drop {
		return p, from
	}
	if !from.single() || from == gatewayMAC {
		p.verdict, p.protocol = drop, "spoofed"
	} else if to != gatewayMAC {
		// It is a broadcast, a multicast, or addressed to an interface that does not exist.
		p.verdict = drop
	}
	return p, from
}

const (
	arpSize              = 28
	arpRequest, arpReply = 1, 2
)

// parseARP parses an ARP message. Every message except a request for the gateway's address gets the
// verdict drop. Replies, and requests with a sender address that is not the sandbox's, serve to
// poison ARP tables.
func parseARP(message []byte, from mac) packet {
	p := packet{protocol: "malformed"}
	// Ethernet and IPv4, with the sizes of their addresses.
	if len(message) < arpSize || [6]byte(message) != [6]byte{0, 1, 8, 0, macSize, 4} {
		return p
	}
	operation := binary.BigEndian.Uint16(message[6:])
	sender, target := netip.AddrFrom4([4]byte(message[14:])), netip.AddrFrom4([4]byte(message[24:]))
	p.protocol, p.dst = "arp", netip.AddrPortFrom(target, 0)
	// A sandbox without an address sends a probe with an empty sender, to find out whether an
	// address is free.
	if mac(message[8:]) != from || sender != egress.SandboxPrefix.Addr() && !sender.IsUnspecified() {
		p.protocol = "spoofed"
		return p
	}
	if operation == arpRequest && target == egress.Gateway {
		p.verdict, p.ip = resolve, message[:arpSize]
	}
	return p
}

// answerARP returns the reply to a request with the verdict resolve.
func answerARP(question []byte) []byte {
	m := make([]byte, 0, arpSize)
	m = append(m, question[:6]...)
	m = binary.BigEndian.AppendUint16(m, arpReply)
	m = append(append(m, gatewayMAC[:]...), egress.Gateway.AsSlice()...)
	return append(m, question[8:18]...)
}
