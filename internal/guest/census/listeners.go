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

// stateListen is the kernel's code for the TCP state LISTEN.
const stateListen = "0A"

// Listeners returns the listening addresses in a TCP table of /proc/net, for IPv4 or IPv6, in the
// order of the table.
func Listeners(table []byte) []netip.AddrPort {
	var out []netip.AddrPort
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[3] != stateListen {
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

// address parses an address of /proc/net/tcp: each group of four bytes is a number in the host's
// byte order.
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

// listeners returns the listening addresses of both address families.
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

// Reach returns the addresses at which programs that listen on port can be reached from inside the
// sandbox. For an unspecified address that is the loopback address of its family, otherwise the
// address itself. Duplicates are removed, and loopback addresses come first.
func Reach(proc string, port int) []netip.AddrPort {
	var loopback, others []netip.AddrPort
	for _, l := range listeners(proc) {
		addr := l.Addr()
		switch {
		case int(l.Port()) != port || addr.IsLinkLocalUnicast() || addr.IsMulticast():
			// A link-local address cannot be used without its interface, which the table does not
			// contain.
			continue
		case addr == netip.IPv6Unspecified():
			addr = netip.IPv6Loopback()
		case addr == netip.IPv4Unspecified():
			addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		to := netip.AddrPortFrom(addr, l.Port())
		switch {
		case slices.Contains(loopback, to) || slices.Contains(others, to):
		case addr.IsLoopback():
			loopback = append(loopback, to)
		default:
			others = append(others, to)
		}
	}
	return append(loopback, others...)
}
