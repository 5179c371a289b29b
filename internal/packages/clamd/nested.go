package clamd

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"sync"
)

// nestedLevels is beyond the greatest value that the daemon's MaxRecursion can have, which is 100.
const nestedLevels = 120

// tooDeep returns a zip in a zip, and so on, which no daemon unpacks completely.
var tooDeep = sync.OnceValue(func() string {
	content := []byte("x")
	for range nestedLevels {
		content = stored(content)
	}
	return string(content)
})

// stored returns a zip with one file, which is not compressed.
func stored(content []byte) []byte {
	var out bytes.Buffer
	sum, size := crc32.ChecksumIEEE(content), uint32(len(content))
	common := func() {
		// Version 2.0, no flags, no compression, no time, the checksum, both sizes, a name of one byte,
		// no extra field.
		for _, v := range []any{uint16(20), uint16(0), uint16(0), uint16(0), uint16(0x21), sum, size, size, uint16(1), uint16(0)} {
			_ = binary.Write(&out, binary.LittleEndian, v) // a buffer does not fail
		}
	}
	out.WriteString("PK\x03\x04")
	common()
	out.WriteString("a")
	out.Write(content)
	directory := uint32(out.Len())
	out.WriteString("PK\x01\x02\x14\x00")
	common()
	out.Write(make([]byte, 2+2+2+4+4)) // no comment, the first disk, no attributes, at the beginning
	out.WriteString("a")
	length := uint32(out.Len()) - directory
	out.WriteString("PK\x05\x06\x00\x00\x00\x00\x01\x00\x01\x00")
	_ = binary.Write(&out, binary.LittleEndian, length)
	_ = binary.Write(&out, binary.LittleEndian, directory)
	out.Write([]byte{0, 0})
	return out.Bytes()
}
