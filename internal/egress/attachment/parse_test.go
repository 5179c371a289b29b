package attachment

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/egress"
)

// Whatever a frame contains, a packet that passes comes from the sandbox, goes to one machine other
// than the sandbox, and lies within the frame.
func FuzzParse(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x60})
	f.Add(slices.Concat([]byte{0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 10, 199, 0, 2, 1, 1, 1, 1}, []byte{0, 9, 0, 53, 0, 9, 0, 0, 'q'}))
	f.Add(slices.Concat([]byte{0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 199, 0, 2, 1, 1, 1, 1}, []byte{0, 9, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0, 9, 0, 0, 0, 0}))
	f.Fuzz(func(t *testing.T, frame []byte) {
		p := parse(frame)
		if p.protocol == "" {
			t.Error("the packet has no protocol name")
		}
		if p.verdict == drop {
			return
		}
		if p.source.Addr() != egress.SandboxPrefix.Addr() || p.source.Port() == 0 || p.dst.Port() == 0 {
			t.Errorf("a packet from %s to %s passed", p.source, p.dst)
		}
		if a := p.dst.Addr(); a == egress.SandboxPrefix.Addr() || a.IsMulticast() || a.IsLoopback() || a.IsUnspecified() {
			t.Errorf("a packet to %s passed", p.dst)
		}
		if len(p.ip) > len(frame) || len(p.payload) > len(p.ip) {
			t.Error("the packet is longer than the frame")
		}
		_ = p.intact()
		switch p.verdict {
		case query:
			got := p.answerUDP([]byte("reply"))
			if string(got[28:]) != "reply" || checksum(got[:ipHeader]) != 0 || checksum(pseudoHeader(got, len(got)-ipHeader), got[ipHeader:]) != 0 {
				t.Errorf("the UDP answer has a wrong payload or checksum: %x", got)
			}
		case refuse:
			if got := p.unreachable(); checksum(got[:ipHeader]) != 0 || checksum(got[ipHeader:]) != 0 {
				t.Errorf("the ICMP answer has a wrong checksum: %x", got)
			}
		case drop, stream: // nothing answers these
		}
	})
}

// Every single wrong bit in the header and in the datagram is detected.
func TestDamagedDatagramIsNotIntact(t *testing.T) {
	whole := slices.Concat([]byte{0x45, 0, 0, 33, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 199, 0, 2, 1, 1, 1, 1}, []byte{0, 9, 0, 53, 0, 13, 0, 0}, []byte("query"))
	binary.BigEndian.PutUint16(whole[10:], checksum(whole[:ipHeader]))
	binary.BigEndian.PutUint16(whole[26:], checksum(pseudoHeader(whole, len(whole)-ipHeader), whole[ipHeader:]))
	p := parse(whole)
	if p.verdict != query || !p.intact() {
		t.Fatalf("control: the valid packet was rejected: %+v", p)
	}
	for bit := range 8 * len(whole) {
		damaged := slices.Clone(whole)
		damaged[bit/8] ^= 1 << (bit % 8)
		if p := parse(damaged); p.verdict != drop && p.intact() {
			t.Errorf("a packet with a wrong bit %d counts as intact", bit)
		}
	}
}

// Whatever an Ethernet frame contains, a packet that passes comes from one interface other than the
// gateway, goes to the gateway, and is IPv4 or a request for its address.
func FuzzParseEthernet(f *testing.F) {
	to, from := gatewayMAC[:], []byte{0x52, 0x54, 0, 1, 2, 3}
	arp := slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, 1}, from, []byte{10, 199, 0, 2}, make([]byte, 6), []byte{10, 199, 0, 1})
	f.Add([]byte{})
	f.Add(slices.Concat(broadcastMAC[:], from, []byte{8, 6}, arp))
	f.Add(slices.Concat(to, from, []byte{8, 0}, []byte{0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 10, 199, 0, 2, 1, 1, 1, 1}, []byte{0, 9, 0, 53, 0, 9, 0, 0, 'q'}))
	f.Add(slices.Concat(to, from, []byte{0x81, 0, 0, 1, 8, 0}, []byte{0x45, 0, 0, 20}))
	f.Add(slices.Concat(to, from, []byte{0x86, 0xdd}, []byte{0x60}, make([]byte, 39)))
	f.Fuzz(func(t *testing.T, frame []byte) {
		p, sender := parseEthernet(frame)
		if p.protocol == "" {
			t.Error("the frame has no protocol name")
		}
		if p.verdict == drop {
			return
		}
		if sender != mac(frame[6:]) || sender == gatewayMAC || sender[0]&1 != 0 || sender == (mac{}) {
			t.Errorf("a frame from %x passed", sender)
		}
		if p.verdict == resolve {
			if frame[12] != 8 || frame[13] != 6 || mac(frame) != gatewayMAC && mac(frame) != broadcastMAC {
				t.Errorf("a frame that is no request for the gateway's address is resolved: % x", frame)
			}
			answer := answerARP(p.ip)
			if len(answer) != arpSize || mac(answer[18:]) != sender || mac(answer[8:]) != gatewayMAC || [4]byte(answer[14:]) != egress.Gateway.As4() {
				t.Errorf("the ARP reply is wrong: % x", answer)
			}
			return
		}
		if mac(frame) != gatewayMAC || frame[12] != 8 || frame[13] != 0 || p.source.Addr() != egress.SandboxPrefix.Addr() {
			t.Errorf("an invalid frame passed: % x", frame)
		}
		if len(p.ip) > len(frame)-etherHeader {
			t.Error("the packet is longer than the frame")
		}
	})
}

// A stream yields the same frames however its bytes are divided.
func FuzzSplit(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 'a', 0, 0, 0, 0, 0, 0, 0, 2, 'b', 'c', 0}, uint8(3))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, cut uint8) {
		var whole, cuts [][]byte
		keep := func(to *[][]byte) func([]byte) {
			return func(frame []byte) { *to = append(*to, slices.Clone(frame)) }
		}
		rest, err := split(data, keep(&whole))
		n := len(rest)
		for _, frame := range whole {
			n += streamPrefix + len(frame)
		}
		if err == nil && n != len(data) {
			t.Errorf("split consumed %d of %d bytes", n, len(data))
		}
		if len(rest) >= streamPrefix+maxStreamFrame {
			t.Errorf("%d bytes are left, which fills the buffer", len(rest))
		}
		var held []byte
		var cutErr error
		for piece := range slices.Chunk(data, int(cut)+1) {
			if held, cutErr = split(append(slices.Clone(held), piece...), keep(&cuts)); cutErr != nil {
				break
			}
		}
		if (err == nil) != (cutErr == nil) || !slices.EqualFunc(whole, cuts, slices.Equal) || !slices.Equal(rest, held) {
			t.Errorf("split of all bytes: frames %x, rest %x, %v; of pieces: frames %x, rest %x, %v; want the same", whole, rest, err, cuts, held, cutErr)
		}
	})
}
