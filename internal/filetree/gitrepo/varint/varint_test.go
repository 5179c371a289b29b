package varint

import (
	"bytes"
	"testing"
)

func TestReadAndAppend(t *testing.T) {
	for v, want := range map[uint64][]byte{0: {0}, 127: {0x7f}, 128: {0x80, 0}, 16511: {0xff, 0x7f}, 16512: {0x80, 0x80, 0}} {
		got := Append([]byte{9}, v)
		if !bytes.Equal(got[1:], want) || got[0] != 9 {
			t.Errorf("Append(%d): got %x, want %x", v, got[1:], want)
		}
		if back, n := Read(append(want, 1)); back != v || n != len(want) {
			t.Errorf("Read(%x): got %d of %d bytes, want %d", want, back, n, v)
		}
	}
	for _, b := range [][]byte{nil, {0x80}, bytes.Repeat([]byte{0x80}, 9)} {
		if v, n := Read(b); v != 0 || n != 0 {
			t.Errorf("Read(%x): got %d of %d bytes, want none", b, v, n)
		}
	}
}
