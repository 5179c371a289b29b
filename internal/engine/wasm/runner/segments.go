package runner

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Numbers of WebAssembly's binary format for memories and data segments.
const (
	segmentActive = 0x00 // a segment for memory 0, with an expression for its offset
	opI32Const    = 0x41
	opEnd         = 0x0b
)

// maxGap is the number of zeros that are written between two segments to make one of them. Go's linker
// leaves out at least 8 zeros. Of the 30,351 segments of a small program, 28,643 remain with a gap of
// 16 bytes, 122 with 32, 9 with 64 and 3 with 128. A gap that is shorter than a page of the processor
// lies in pages that the segments before and after it occupy anyway.
const maxGap = 64

// maxGrowth is how many times larger a section of segments may become by those zeros.
const maxGrowth = 2

// segment is a part of a memory's first content.
type segment struct {
	offset uint64
	init   []byte
}

// end returns the address after the segment.
func (s segment) end() uint64 { return s.offset + uint64(len(s.init)) }

// clipped returns the segment without spare capacity, so that appending to it leaves the module as
// it is.
func (s segment) clipped() segment { return segment{s.offset, slices.Clip(s.init)} }

// mergeSegments returns the content of a section of data segments for a memory of size bytes, with
// neighbouring segments made one. wazero evaluates and copies each segment by itself, and Go's linker
// makes thousands of them. It returns content itself unless both give every memory the same bytes:
//
//   - The memory is new, so the gaps between the segments are zeros.
//   - No two segments overlap, so their order does not matter, and no gap covers another segment.
//   - Every segment lies within the memory, so that no instance fails because of one of them.
//
// The caller checks that the module defines the memory and cannot use the segments by their numbers.
func mergeSegments(content []byte, size uint64) []byte {
	parts, ok := readSegments(content)
	if !ok || slices.ContainsFunc(parts, func(s segment) bool { return s.end() > size }) {
		return content
	}
	parts = slices.DeleteFunc(parts, func(s segment) bool { return len(s.init) == 0 })
	slices.SortFunc(parts, func(a, b segment) int { return cmp.Compare(a.offset, b.offset) })
	var merged []segment
	for _, part := range parts {
		if len(merged) == 0 {
			merged = append(merged, part.clipped())
			continue
		}
		last := &merged[len(merged)-1]
		switch end := last.end(); {
		case part.offset < end:
			return content
		case part.offset-end <= maxGap:
			last.init = append(append(last.init, make([]byte, part.offset-end)...), part.init...)
		default:
			merged = append(merged, part.clipped())
		}
	}
	if out := writeSegments(merged); len(out) <= maxGrowth*len(content) {
		return out
	}
	return content
}

// readSegments reads a section. ok is false if it has another segment than an active one of memory
// 0 with a constant offset.
func readSegments(content []byte) (parts []segment, ok bool) {
	count, used, err := number(content)
	if err != nil || count > len(content) {
		return nil, false
	}
	rest := content[used:]
	parts = make([]segment, 0, count)
	for range count {
		if len(rest) < 2 || rest[0] != segmentActive || rest[1] != opI32Const {
			return nil, false
		}
		offset, used, ok := signed(rest[2:])
		if rest = rest[2+used:]; !ok || len(rest) == 0 || rest[0] != opEnd {
			return nil, false
		}
		size, used, err := number(rest[1:])
		if err != nil || size > len(rest)-1-used {
			return nil, false
		}
		rest = rest[1+used:]
		// Addresses are numbers without a sign, but constants are written with one.
		parts = append(parts, segment{uint64(uint32(offset)), rest[:size]})
		rest = rest[size:]
	}
	return parts, len(rest) == 0
}

// writeSegments writes a section.
func writeSegments(parts []segment) []byte {
	out := binary.AppendUvarint(nil, uint64(len(parts)))
	for _, part := range parts {
		out = appendSigned(append(out, segmentActive, opI32Const), int32(uint32(part.offset)))
		out = append(binary.AppendUvarint(append(out, opEnd), uint64(len(part.init))), part.init...)
	}
	return out
}

// signed reads a signed number of 32 bits at the start of data, and returns how many bytes it takes.
func signed(data []byte) (n int32, used int, ok bool) {
	for shift := 0; used < min(len(data), maxLEB128Size); shift += 7 {
		b := data[used]
		used++
		n |= int32(b&0x7f) << shift
		if b&0x80 == 0 {
			if shift+7 < 32 && b&0x40 != 0 {
				n |= -1 << (shift + 7)
			}
			return n, used, true
		}
	}
	return 0, 0, false
}

// appendSigned appends a signed number as signed reads it.
func appendSigned(out []byte, n int32) []byte {
	for n < -0x40 || n >= 0x40 {
		out = append(out, byte(n)&0x7f|0x80)
		n >>= 7
	}
	return append(out, byte(n)&0x7f)
}

// memoryBytes returns the size of a new memory that a section of memories defines. ok is false
// unless it defines exactly one that only one instance can use.
func memoryBytes(content []byte) (size uint64, ok bool) {
	const one, maxLimits = 1, 1 // the flags of a memory without and with a maximum are 0 and 1
	if len(content) < 2 || content[0] != one || content[1] > maxLimits {
		return 0, false
	}
	least, _, err := number(content[2:])
	return uint64(least) * pageBytes, err == nil
}
