package attachment

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/egress"
)

// Whatever a frame holds, what is let on comes from the box, goes to one
// machine that is not the box, and is no more than the frame.
func FuzzParse(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x60})
	f.Add(slices.Concat([]byte{0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 10, 199, 0, 2, 1, 1, 1, 1}, []byte{0, 9, 0, 53, 0, 9, 0, 0, 'q'}))
	f.Add(slices.Concat([]byte{0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 199, 0, 2, 1, 1, 1, 1}, []byte{0, 9, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0, 9, 0, 0, 0, 0}))
	f.Fuzz(func(t *testing.T, frame []byte) {
		p := parse(frame)
		if p.protocol == "" {
			t.Error("a packet without a name")
		}
		if p.verdict == drop {
			return
		}
		if p.source.Addr() != egress.Box.Addr() || p.source.Port() == 0 || p.dst.Port() == 0 {
			t.Errorf("%s to %s", p.source, p.dst)
		}
		if a := p.dst.Addr(); a == egress.Box.Addr() || a.IsMulticast() || a.IsLoopback() || a.IsUnspecified() {
			t.Errorf("to %s", p.dst)
		}
		if len(p.ip) > len(frame) || len(p.payload) > len(p.ip) {
			t.Error("more than the frame")
		}
		_ = p.intact()
		switch p.verdict {
		case query:
			got := p.answerUDP([]byte("reply"))
			if string(got[28:]) != "reply" || checksum(got[:ipHeader]) != 0 || checksum(pseudoHeader(got, len(got)-ipHeader), got[ipHeader:]) != 0 {
				t.Errorf("answer %x", got)
			}
		case refuse:
			if got := p.unreachable(); checksum(got[:ipHeader]) != 0 || checksum(got[ipHeader:]) != 0 {
				t.Errorf("refusal %x", got)
			}
		case drop, stream: // answered by no packet made here
		}
	})
}

// One wrong bit anywhere is found, of the header and of the datagram.
func TestADamagedDatagramIsNotIntact(t *testing.T) {
	whole := slices.Concat([]byte{0x45, 0, 0, 33, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 199, 0, 2, 1, 1, 1, 1}, []byte{0, 9, 0, 53, 0, 13, 0, 0}, []byte("query"))
	binary.BigEndian.PutUint16(whole[10:], checksum(whole[:ipHeader]))
	binary.BigEndian.PutUint16(whole[26:], checksum(pseudoHeader(whole, len(whole)-ipHeader), whole[ipHeader:]))
	p := parse(whole)
	if p.verdict != query || !p.intact() {
		t.Fatalf("control: %+v", p)
	}
	for bit := range 8 * len(whole) {
		damaged := slices.Clone(whole)
		damaged[bit/8] ^= 1 << (bit % 8)
		if p := parse(damaged); p.verdict != drop && p.intact() {
			t.Errorf("bit %d", bit)
		}
	}
}
