package git

import (
	"errors"
	"fmt"
	"io"
)

// longestPacket is git's own limit for a line with its length.
const longestPacket = 65520

var errPacket = errors.New("broken pkt-line")

// readPacket reads one pkt-line. It returns nil without an error for a flush. The delimiters of
// protocol 2 do not occur in a push and are errors. A server that treats one as the end of the
// commands would execute fewer commands than this package has checked.
func readPacket(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, fmt.Errorf("%w: no length: %w", errPacket, err)
	}
	n := 0
	for _, c := range length {
		d, ok := hexDigit(c)
		if !ok {
			return nil, fmt.Errorf("%w: length %q", errPacket, length)
		}
		n = n<<4 | d
	}
	if n == 0 {
		return nil, nil
	}
	// 0004 is an empty line, which a push never has.
	if n <= 4 || n > longestPacket {
		return nil, fmt.Errorf("%w: length %d", errPacket, n)
	}
	line := make([]byte, n-4)
	if _, err := io.ReadFull(r, line); err != nil {
		return nil, fmt.Errorf("%w: cut short: %w", errPacket, err)
	}
	return line, nil
}

// appendPacket appends one pkt-line. The data must fit.
func appendPacket(b, data []byte) []byte {
	return append(fmt.Appendf(b, "%04x", len(data)+4), data...)
}

func appendFlush(b []byte) []byte { return append(b, "0000"...) }

func hexDigit(c byte) (int, bool) {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0'), true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10, true
	}
	return 0, false
}
