package runner

import (
	"encoding/binary"
	"errors"
)

// Numbers of WebAssembly's binary format.
const (
	headerBytes   = 8
	sectionCode   = 10
	outlineTraps  = "\x03\x00\x00\x0b" // the size of the body, no variables, unreachable, end
	maxLEB128Size = 5
)

// errOutline is returned for a module whose sections cannot be told apart.
var errOutline = errors.New("the sections of the module are malformed")

// outline returns a module with everything but the code: each function traps at once. wazero decodes
// and validates a module whenever it loads the native code, although that code has been made from
// it, and most of that time is for the functions. With the outline it takes a third.
func outline(module []byte) ([]byte, error) {
	if len(module) < headerBytes {
		return nil, errOutline
	}
	out := append(make([]byte, 0, len(module)), module[:headerBytes]...)
	for rest := module[headerBytes:]; len(rest) > 0; {
		size, used, err := number(rest[1:])
		if err != nil || size > len(rest)-1-used {
			return nil, errOutline
		}
		content := rest[1+used : 1+used+size]
		if rest[0] == sectionCode {
			count, _, err := number(content)
			if err != nil || count > len(content) {
				return nil, errOutline
			}
			body := binary.AppendUvarint(nil, uint64(count))
			for range count {
				body = append(body, outlineTraps...)
			}
			out = append(binary.AppendUvarint(append(out, sectionCode), uint64(len(body))), body...)
		} else {
			out = append(out, rest[:1+used+size]...)
		}
		rest = rest[1+used+size:]
	}
	return out, nil
}

// number reads a number of 32 bits at the start of data, and returns how many bytes it takes.
func number(data []byte) (n, used int, err error) {
	value, used := binary.Uvarint(data[:min(len(data), maxLEB128Size)])
	if used <= 0 || value > 1<<32-1 {
		return 0, 0, errOutline
	}
	return int(value), used, nil
}
