package policy

import (
	"errors"
	"net/netip"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// validName reports whether a host name is in canonical form: lower-case letters, digits and
// hyphens between dots, ASCII only, and without a last label that could make it an address.
func validName(h string) bool {
	if h == "" || len(h) > 253 {
		return false
	}
	start, digits := 0, true
	for i := 0; i <= len(h); i++ {
		if i == len(h) || h[i] == '.' {
			if n := i - start; n == 0 || n > 63 || h[start] == '-' || h[i-1] == '-' {
				return false
			}
			if i == len(h) {
				last := h[start:]
				return !digits && !strings.HasPrefix(last, "0x")
			}
			start, digits = i+1, true
			continue
		}
		switch c := h[i]; {
		case 'a' <= c && c <= 'z', c == '-':
			digits = false
		case '0' <= c && c <= '9':
		default:
			return false
		}
	}
	return false
}

// address parses a host that is an address. Checking the last byte first avoids parsing names.
func address(h string) (netip.Addr, bool) {
	if h == "" || (h[len(h)-1] < '0' || h[len(h)-1] > '9') && !strings.Contains(h, ":") {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(h)
	return a.Unmap(), err == nil && a.Zone() == ""
}

// checkPattern returns an error if a block's host is not valid.
func checkPattern(h string) error {
	name, wild := strings.CutPrefix(h, "*.")
	switch {
	case h == "*":
		return errors.New("* is every host there is; list hosts, or set network.unlisted")
	case strings.Contains(name, "*"):
		return errors.New("a wildcard is *. and a name, such as *.example.com")
	case !validName(name):
		return errors.New("not a host name; it must be in lower case, ASCII (xn-- for others), and without port, slash or dot at the end")
	case !wild:
		return nil
	case !strings.Contains(name, "."):
		return errors.New("a wildcard over a whole top-level domain")
	}
	// Anyone can register a name below a public suffix.
	if suffix, icann := publicsuffix.PublicSuffix(name); icann && suffix == name {
		return errors.New("anybody can register a name below " + name + "; list the domains that are meant")
	}
	return nil
}

// sharedSuffix reports whether a wildcard matches names that a provider gives to anyone.
func sharedSuffix(pattern string) bool {
	name, wild := strings.CutPrefix(pattern, "*.")
	if !wild {
		return false
	}
	suffix, _ := publicsuffix.PublicSuffix(name)
	return suffix == name
}

// prefix parses an address or a prefix. Bits below the mask are an error in a document, because it
// is unclear what was meant.
func prefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" && !a.Is4In6() {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil || p.Addr().Is4In6():
		return netip.Prefix{}, errors.New("not an address or a prefix such as 203.0.113.0/24")
	case p != p.Masked():
		return netip.Prefix{}, errors.New("has bits below its mask; " + p.Masked().String() + " is the whole network")
	}
	return p, nil
}
