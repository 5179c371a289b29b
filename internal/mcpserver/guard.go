package mcpserver

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// guard refuses requests that a web page could have sent. With DNS rebinding, a page's own name
// resolves to this server's address, and the browser sends the page's requests to this server. The
// request contains the page's name, so guard accepts only known names. Addresses cannot be rebound,
// and localhost is not a web page's name.
type guard struct{ names []string }

func newGuard(names ...string) guard {
	var g guard
	for _, n := range names {
		if n != "" {
			g.names = append(g.names, hostOnly(n))
		}
	}
	return g
}

func (g guard) check(r *http.Request) error {
	if !g.knows(hostOnly(r.Host)) {
		return fault.New(fault.Denied, "host_refused", "the host name of the request is not allowed").
			WithHint("the setting mcp_hosts lists allowed names; addresses and localhost are always allowed")
	}
	// Browsers always send the origin of a request, unless the page comes from the server itself.
	// Other programs send none.
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || !g.knows(hostOnly(u.Host)) {
			return fault.New(fault.Denied, "origin_refused", "pages of other sites may not use this server")
		}
	}
	return nil
}

func (g guard) knows(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.Contains(g.names, host)
}

// hostOnly returns a host without its port and brackets, in lower case.
func hostOnly(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.ToLower(strings.Trim(strings.TrimSuffix(host, "."), "[]"))
}
