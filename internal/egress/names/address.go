package names

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/crannog/crannog/internal/fault"
)

// CheckAddress returns an error if the gateway must not dial an address to which a name resolved.
// Public addresses are allowed. The floor and the host's own addresses are never allowed. Other
// special ranges are allowed only if a rule lists them in allowed. An IPv6 address that contains an
// IPv4 address must pass as both. Otherwise a sandbox could reach 169.254.169.254 through a
// translator in the local network.
func CheckAddress(a netip.Addr, allowed []netip.Prefix, own []netip.Addr) error {
	if !a.IsValid() {
		return fault.New(fault.Denied, "address_invalid", "an address is invalid")
	}
	// A zone selects an interface of this machine, which a sandbox never needs.
	if a.Zone() != "" {
		return fault.New(fault.Denied, "address_zoned", "an address names an interface of this machine")
	}
	a = a.Unmap()
	inner, embeds := embedded(a)
	if !embeds {
		inner = a
	}
	for _, each := range []netip.Addr{a, inner} {
		if r, matched := find(floor(), each); matched {
			return refuse(a, r.what, "address_never", "the host leads to an address that no sandbox may reach")
		}
		if slices.ContainsFunc(own, func(o netip.Addr) bool { return o.Unmap().WithZone("") == each }) {
			return refuse(a, "of this machine", "address_own", "the host leads to the machine that runs this sandbox")
		}
	}
	for _, each := range []netip.Addr{a, inner} {
		if slices.ContainsFunc(allowed, func(p netip.Prefix) bool { return p.Contains(each) }) {
			continue
		}
		if r, matched := find(special(), each); matched {
			return private(a, r.what)
		}
		if each.Is6() && !unicast().Contains(each) && !translated().Contains(each) {
			return private(a, "not in IPv6's global unicast space")
		}
	}
	return nil
}

// refuse returns an error that has the address only in its cause. The error's text goes into the
// sandbox, which must not learn the addresses of names in the operator's network.
func refuse(a netip.Addr, what, code, text string) *fault.Error {
	return fault.Wrap(fmt.Errorf("%s is %s", a, what), fault.Denied, code, text)
}

func private(a netip.Addr, what string) *fault.Error {
	return refuse(a, what, "address_private", "the host leads to an address that is not public, and no rule allows it").
		WithHint("name the address range under cidrs in the host's rule, if the host is meant to be there")
}

// embedded returns the IPv4 address that an IPv6 address contains.
func embedded(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return netip.Addr{}, false
	}
	b := a.As16()
	last := netip.AddrFrom4([4]byte(b[12:16]))
	switch {
	case translated().Contains(a): // NAT64, RFC 6052 section 2.1
		return last, true
	case b[0] == 0x20 && b[1] == 0x02: // 6to4, RFC 3056 section 2
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case b[0] == 0x20 && b[1] == 0x01 && b[2] == 0 && b[3] == 0:
		// Teredo, RFC 4380 section 4: the client's address with all bits
		// inverted.
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), true
	case b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe:
		// ISATAP, RFC 5214 section 6.1, below any prefix. The ignored bit means that the IPv4
		// address is globally unique.
		return last, true
	}
	return netip.Addr{}, false
}

// span is a range of addresses with its purpose and source.
type span struct {
	prefix       netip.Prefix
	what, source string
}

func find(table []span, a netip.Addr) (span, bool) {
	for _, s := range table {
		if s.prefix.Contains(a) {
			return s, true
		}
	}
	return span{}, false
}

// The tables are built on first use, because this binary starts once per sandbox and usually never
// dials.
var (
	unicast    = sync.OnceValue(func() netip.Prefix { return netip.MustParsePrefix("2000::/3") })     // RFC 4291 section 2.4, IANA's only allocation
	translated = sync.OnceValue(func() netip.Prefix { return netip.MustParsePrefix("64:ff9b::/96") }) // RFC 6052
	floor      = sync.OnceValue(func() []span { return parse(floorRows) })
	special    = sync.OnceValue(func() []span { return parse(specialRows) })
)

func parse(rows [][3]string) []span {
	table := make([]span, 0, len(rows))
	for _, r := range rows {
		table = append(table, span{netip.MustParsePrefix(r[0]), r[1], r[2]})
	}
	return table
}
