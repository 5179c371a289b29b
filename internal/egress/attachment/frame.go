package attachment

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress"
)

// Sizes of headers without options.
const (
	ipHeader  = 20
	udpHeader = 8
	tcpHeader = 20
)

// packet is a parsed frame from a sandbox.
type packet struct {
	proto    uint8
	source   netip.AddrPort
	dst      netip.AddrPort
	ip       []byte // header and payload, without trailing bytes; for ARP the message
	payload  []byte // of UDP
	begins   bool   // it is a SYN that requests a new connection
	verdict  verdict
	protocol string // the protocol's name, for people
}

// verdict is what happens to a packet.
type verdict int

const (
	drop    verdict = iota // dropped
	stream                 // to the stack
	query                  // to Handler.Names
	refuse                 // answered as "port unreachable"
	resolve                // answered with an ARP reply
)

// parse parses a frame. Everything that it does not recognise gets the verdict drop. Fragments,
// options and spoofed sources serve to attack a network stack, and no program in a sandbox needs
// them.
func parse(frame []byte) packet {
	p := packet{protocol: "malformed"}
	if len(frame) == 0 {
		return p
	}
	if frame[0]>>4 == 6 {
		p.protocol = "ipv6"
		if len(frame) >= 40 {
			p.dst = netip.AddrPortFrom(netip.AddrFrom16([16]byte(frame[24:40])), 0)
		}
		return p
	}
	if len(frame) < ipHeader || len(frame) > egress.MTU || frame[0]>>4 != 4 {
		return p
	}
	length := int(binary.BigEndian.Uint16(frame[2:]))
	p.dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(frame[16:20])), 0)
	if frame[0]&0x0f != ipHeader/4 || length < ipHeader || length > len(frame) {
		return p
	}
	p.ip, p.proto = frame[:length], frame[9]
	// Drop a packet with the flag "more fragments" or with a fragment offset.
	if binary.BigEndian.Uint16(frame[6:])&0x3fff != 0 {
		p.protocol = "fragment"
		return p
	}
	source := netip.AddrFrom4([4]byte(frame[12:16]))
	if source != egress.SandboxPrefix.Addr() {
		p.protocol = "spoofed"
		return p
	}
	body := p.ip[ipHeader:]
	switch p.proto {
	case unix.IPPROTO_TCP:
		p.tcp(source, body)
	case unix.IPPROTO_UDP:
		p.udp(source, body)
	case unix.IPPROTO_ICMP:
		p.protocol = "icmp"
	default:
		p.protocol = "ip"
	}
	if p.verdict != drop && !unicast(p.dst.Addr()) {
		p.verdict = drop
	}
	return p
}

func (p *packet) ports(source netip.Addr, body []byte) {
	p.source = netip.AddrPortFrom(source, binary.BigEndian.Uint16(body))
	p.dst = netip.AddrPortFrom(p.dst.Addr(), binary.BigEndian.Uint16(body[2:]))
}

func (p *packet) tcp(source netip.Addr, body []byte) {
	if len(body) < tcpHeader {
		return
	}
	if offset := int(body[12]>>4) * 4; offset < tcpHeader || offset > len(body) {
		return
	}
	p.protocol = "tcp"
	p.ports(source, body)
	const syn, ack = 0x02, 0x10
	p.begins = body[13]&(syn|ack) == syn
	if p.source.Port() != 0 && p.dst.Port() != 0 {
		p.verdict = stream
	}
}

func (p *packet) udp(source netip.Addr, body []byte) {
	if len(body) < udpHeader {
		return
	}
	length := int(binary.BigEndian.Uint16(body[4:]))
	if length < udpHeader || length > len(body) {
		return
	}
	p.protocol = "udp"
	p.ports(source, body)
	p.payload = body[udpHeader:length]
	switch {
	case p.source.Port() == 0 || p.dst.Port() == 0:
	case p.dst.Port() == namesPort:
		p.verdict = query
	default:
		p.verdict = refuse
	}
}

// unicast reports whether an address belongs to one machine other than the sandbox itself. The
// handler gets addresses such as loopback and link-local ones and refuses them with an audit entry.
// Addresses that the stack could treat as its own are dropped.
func unicast(a netip.Addr) bool {
	b := a.As4()
	return b[0] != 0 && b[0] != 127 && b[0] < 224 && a != egress.SandboxPrefix.Addr() &&
		a != egress.SandboxPrefix.Masked().Addr() && a != lastOf(egress.SandboxPrefix)
}

// lastOf returns the broadcast address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	n := binary.BigEndian.Uint32(b[:]) | (1<<(32-p.Bits()) - 1)
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// intact reports whether the checksums of the IP header and of UDP are valid. The stack checks
// those of TCP.
func (p *packet) intact() bool {
	if checksum(p.ip[:ipHeader]) != 0 {
		return false
	}
	body := p.ip[ipHeader:]
	if p.proto != unix.IPPROTO_UDP || binary.BigEndian.Uint16(body[6:]) == 0 {
		return true
	}
	datagram := body[:udpHeader+len(p.payload)]
	return checksum(pseudoHeader(p.ip, len(datagram)), datagram) == 0
}

// pseudoHeader returns the data that a UDP checksum covers in addition to the datagram.
func pseudoHeader(ip []byte, length int) []byte {
	h := make([]byte, 12)
	copy(h, ip[12:20])
	h[9] = ip[9]
	binary.BigEndian.PutUint16(h[10:], uint16(length))
	return h
}

// answerUDP returns the frame that answers p with data.
func (p *packet) answerUDP(data []byte) []byte {
	f := p.answer(unix.IPPROTO_UDP, udpHeader+len(data))
	body := f[ipHeader:]
	binary.BigEndian.PutUint16(body, p.dst.Port())
	binary.BigEndian.PutUint16(body[2:], p.source.Port())
	binary.BigEndian.PutUint16(body[4:], uint16(len(body)))
	copy(body[udpHeader:], data)
	sum := checksum(pseudoHeader(f, len(body)), body)
	if sum == 0 {
		sum = 0xffff // zero would mean that there is none
	}
	binary.BigEndian.PutUint16(body[6:], sum)
	return f
}

// unreachable returns an ICMP frame that reports that p's port has no listener, so that a program
// fails at once instead of waiting.
func (p *packet) unreachable() []byte {
	const size, destinationUnreachable, port = 8, 3, 3
	quote := p.ip[:ipHeader+udpHeader]
	f := p.answer(unix.IPPROTO_ICMP, size+len(quote))
	body := f[ipHeader:]
	body[0], body[1] = destinationUnreachable, port
	copy(body[size:], quote)
	binary.BigEndian.PutUint16(body[2:], checksum(body))
	return f
}

// answer writes the IP header of a frame from p's destination back to its source.
func (p *packet) answer(proto uint8, size int) []byte {
	const dontFragment, hops = 0x4000, 64
	f := make([]byte, ipHeader+size)
	f[0] = 0x45
	binary.BigEndian.PutUint16(f[2:], uint16(len(f)))
	binary.BigEndian.PutUint16(f[6:], dontFragment)
	f[8], f[9] = hops, proto
	src, dst := p.dst.Addr().As4(), p.source.Addr().As4()
	copy(f[12:], src[:])
	copy(f[16:], dst[:])
	binary.BigEndian.PutUint16(f[10:], checksum(f[:ipHeader]))
	return f
}

// checksum returns the Internet checksum of data whose own checksum field is zero. Only the last
// part may have an odd length.
func checksum(parts ...[]byte) uint16 {
	var sum uint32
	for _, data := range parts {
		for ; len(data) > 1; data = data[2:] {
			sum += uint32(binary.BigEndian.Uint16(data))
		}
		if len(data) == 1 {
			sum += uint32(data[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
