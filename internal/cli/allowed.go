package cli

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/fault"
)

// checkAllowed refuses values of --allow that the flag cannot allow: URLs, this machine, and special
// or private addresses. Otherwise the flag would be accepted and have no effect.
func checkAllowed(allow []string) error {
	for _, s := range allow {
		if strings.Contains(s, "://") {
			return urlError(s)
		}
		host := s
		if h, _, err := net.SplitHostPort(s); err == nil {
			host = h
		}
		host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
		if host == "localhost" || strings.HasSuffix(host, ".localhost") {
			return usagef("--allow: no policy can allow %q: it means this machine", inert(s)).hint(machineHint)
		}
		a, ok := firstAddress(host)
		if !ok {
			continue
		}
		err := names.CheckAddress(a, nil, nil)
		if err == nil {
			continue
		}
		what := err.Error()
		if cause := errors.Unwrap(err); cause != nil {
			what = cause.Error()
		}
		if fault.CodeOf(err) == "address_private" {
			return usagef("--allow cannot allow %q: %s", inert(s), what).
				hint("to allow a private network, list it under cidrs in a policy: crannog run --policy FILE; docs/how-to/control-the-network.md has an example")
		}
		return usagef("--allow: no policy can allow %q: %s", inert(s), what).hint(machineHint)
	}
	return nil
}

// machineHint names the addresses that no policy can allow.
const machineHint = "no policy can allow this machine and its loopback, metadata services of clouds, link-local and multicast addresses"

// firstAddress parses an address, or the first address of a prefix.
func firstAddress(s string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		return a, true
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked().Addr(), err == nil
}

// urlError explains that --allow needs a host and not a URL.
func urlError(s string) error {
	f := usagef("--allow: %q is a URL, but --allow needs a host", inert(s))
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" {
		return f.hint("use a host, or a host and a port: --allow example.com --allow example.com:8443")
	}
	host := u.Host
	if u.Scheme == "http" && u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "80")
	}
	text := "--allow " + inert(host) + " allows all paths of that host"
	if u.Path != "" && u.Path != "/" {
		text += "; to allow only some paths, write a policy: crannog run --policy FILE"
	}
	return f.hint(text)
}
