package census

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// listening is the state of a socket that accepts connections.
const listening = "0A"

// Listeners returns the addresses in a table of /proc/net on which programs
// listen, in the order of the table. The table is that of IPv4 or of IPv6.
func Listeners(table []byte) []netip.AddrPort {
	var out []netip.AddrPort
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[3] != listening {
			continue
		}
		host, number, ok := strings.Cut(fields[1], ":")
		addr, known := address(host)
		port, err := strconv.ParseUint(number, 16, 16)
		if ok && known && err == nil && port > 0 {
			out = append(out, netip.AddrPortFrom(addr, uint16(port)))
		}
	}
	return out
}

// address parses an address as the kernel prints it: each group of four bytes as a number in the
// host's byte order.
func address(digits string) (netip.Addr, bool) {
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.Addr{}, false
	}
	for group := range slices.Chunk(raw, 4) {
		binary.NativeEndian.PutUint32(group, binary.BigEndian.Uint32(group))
	}
	return netip.AddrFromSlice(raw)
}

// listeners returns all addresses on which programs listen, of both families.
func listeners(proc string) []netip.AddrPort {
	var out []netip.AddrPort
	for _, table := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile(filepath.Join(proc, "net", table))
		if err != nil {
			continue // a kernel without this family
		}
		out = append(out, Listeners(data)...)
	}
	return out
}

// Reach returns the addresses by which programs that listen on port can be reached from inside: the
// loopback of the family for an unspecified address, otherwise the address itself. It returns each
// once, loopback addresses first.
func Reach(proc string, port int) []netip.AddrPort {
	var near, far []netip.AddrPort
	for _, l := range listeners(proc) {
		addr := l.Addr()
		switch {
		case int(l.Port()) != port || addr.IsLinkLocalUnicast() || addr.IsMulticast():
			// A link-local address is useless without its interface.
			continue
		case addr == netip.IPv6Unspecified():
			addr = netip.IPv6Loopback()
		case addr == netip.IPv4Unspecified():
			addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		to := netip.AddrPortFrom(addr, l.Port())
		switch {
		case slices.Contains(near, to) || slices.Contains(far, to):
		case addr.IsLoopback():
			near = append(near, to)
		default:
			far = append(far, to)
		}
	}
	return append(near, far...)
}
