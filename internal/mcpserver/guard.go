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

// guard refuses requests that a web page could have sent. A page's own name
// may lead to this server's address (DNS rebinding), and the browser then
// takes the server for the page's; but the page's name is in the request.
// Addresses cannot be rebound, and localhost is no web page's name.
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
		return fault.New(fault.Denied, "host_refused", "this server is not known by the name in the request").
			WithHint("the setting mcp_hosts lists names; addresses and localhost are always known")
	}
	// Browsers always say where a request comes from, unless it is of the
	// server's own page. Other programs say nothing.
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

// hostOnly is a host without its port and brackets, in lower case.
func hostOnly(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.ToLower(strings.Trim(strings.TrimSuffix(host, "."), "[]"))
}
