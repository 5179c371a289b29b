package runner

import (
	"encoding/binary"
	"errors"
)

// Numbers of WebAssembly's binary format.
const (
	headerBytes      = 8
	sectionMemory    = 5
	sectionCode      = 10
	sectionData      = 11
	sectionDataCount = 12
	outlineTraps     = "\x03\x00\x00\x0b" // the size of the body, no variables, unreachable, end
	maxLEB128Size    = 5
)

// errOutline is returned for a module whose sections cannot be told apart.
var errOutline = errors.New("the sections of the module are malformed")

// outline returns a module with everything but the code: each function traps at once. wazero decodes
// and validates a module whenever it loads the native code, although that code has been made from
// it, and most of that time is for the functions. With the outline it takes a third. It also has
// fewer data segments, as mergeSegments describes.
func outline(module []byte) ([]byte, error) {
	if len(module) < headerBytes {
		return nil, errOutline
	}
	out := append(make([]byte, 0, len(module)), module[:headerBytes]...)
	var memory uint64
	mergeable := false
	for rest := module[headerBytes:]; len(rest) > 0; {
		id := rest[0]
		size, used, err := number(rest[1:])
		if err != nil || size > len(rest)-1-used {
			return nil, errOutline
		}
		content := rest[1+used : 1+used+size]
		rest = rest[1+used+size:]
		switch id {
		case sectionMemory:
			memory, mergeable = memoryBytes(content)
		case sectionDataCount:
			// The functions of a module with this section can use segments by their numbers.
			mergeable = false
		case sectionCode:
			if content, err = withTraps(content); err != nil {
				return nil, err
			}
		case sectionData:
			if mergeable {
				content = mergeSegments(content, memory)
			}
		}
		out = append(binary.AppendUvarint(append(out, id), uint64(len(content))), content...)
	}
	return out, nil
}

// withTraps returns the content of a section with the code of as many functions, each of which traps.
func withTraps(code []byte) ([]byte, error) {
	count, _, err := number(code)
	if err != nil || count > len(code) {
		return nil, errOutline
	}
	body := binary.AppendUvarint(nil, uint64(count))
	for range count {
		body = append(body, outlineTraps...)
	}
	return body, nil
}

// number reads a number of 32 bits at the start of data, and returns how many bytes it takes.
func number(data []byte) (n, used int, err error) {
	value, used := binary.Uvarint(data[:min(len(data), maxLEB128Size)])
	if used <= 0 || value > 1<<32-1 {
		return 0, 0, errOutline
	}
	return int(value), used, nil
}
