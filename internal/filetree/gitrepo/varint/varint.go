// Package varint owns the variable-length numbers in git's index of version 4 and in its packs.
// They differ from those of encoding/binary: the first byte is the most significant, and each
// number has only one encoding.
package varint

// maxBytes bounds the length of a number.
const maxBytes = 8

// Read returns the number at the beginning of b and its length in bytes, which is 0 if
// there is no number.
func Read(b []byte) (v uint64, n int) {
	for n < len(b) && n < maxBytes {
		c := b[n]
		n++
		v |= uint64(c & 0x7f)
		if c&0x80 == 0 {
			return v, n
		}
		v = (v + 1) << 7
	}
	return 0, 0
}

// Append appends a number to out.
func Append(out []byte, v uint64) []byte {
	var b [10]byte
	i := len(b) - 1
	b[i] = byte(v & 0x7f)
	for v >>= 7; v > 0; v >>= 7 {
		v--
		i--
		b[i] = 0x80 | byte(v&0x7f)
	}
	return append(out, b[i:]...)
}
