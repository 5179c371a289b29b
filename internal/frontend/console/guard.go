package console

import (
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// guardHeaders are for every answer, also of refusals.
func guardHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), usb=(), serial=(), payment=()")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
}

// rightHost refuses a name that somebody else's name server may have pointed
// at us: a page under such a name would be of the same origin as the console
// in the eyes of a browser (DNS rebinding).
func (c *Console) rightHost(r *http.Request) error {
	if ownName(hostOf(r.Host), r, c.o.Hosts) {
		return nil
	}
	return fault.New(fault.Denied, "host_not_allowed", "the console is not to be reached by this name").
		WithHint("use the address that crannog serve prints, or add the name to the setting mcp_hosts")
}

// hostOf is a host without its port, in the form to be compared.
func hostOf(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func ownName(host string, r *http.Request, names []string) bool {
	if host == "" {
		return false
	}
	if host == "localhost" || slices.ContainsFunc(names, func(name string) bool { return name != "" && hostOf(name) == host }) {
		return true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	// No name server can point an address elsewhere: a browser that uses it has connected to
	// it. It still has to be the one that was connected to.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || local.Network() == "unix" {
		return addr.IsLoopback()
	}
	at, err := netip.ParseAddrPort(local.String())
	return addr.IsLoopback() || err == nil && at.Addr().Unmap() == addr.Unmap()
}

// ownPage refuses what a page of another origin has sent, a sandbox's preview
// among them: the browser would add the cookie for a page of the same site.
func ownPage(r *http.Request) error {
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return foreign()
		}
	}
	origins := r.Header.Values("Origin")
	for _, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || !strings.EqualFold(u.Host, r.Host) {
			return foreign()
		}
	}
	// A browser says where a WebSocket comes from, and nothing else keeps
	// another site from opening one.
	if upgrades(r) && len(origins) != 1 {
		return foreign()
	}
	return nil
}

// oneForm reports whether a path is written as pages write it. What is behind
// the gate may cut a path into its parts in another way: with a slash that is
// escaped, the route that answers would not be the one whose scope was checked,
// and a viewer would get at what files hold. And the mux would send a browser
// on from a path that is not in its shortest form.
func oneForm(r *http.Request) bool {
	written := r.URL.EscapedPath()
	return strings.HasPrefix(written, apiPath+"/") && !strings.Contains(strings.ToLower(written), "%2f") && path.Clean(r.URL.Path) == r.URL.Path
}

func foreign() error {
	return fault.New(fault.Denied, "cross_origin", "only the console's own pages may ask this")
}

func upgrades(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

func unsafe(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// plainBody refuses a body that a form of any page could send. Files go up by
// PUT, which no form can.
func plainBody(r *http.Request) error {
	if !unsafe(r.Method) || r.ContentLength == 0 || r.Method == http.MethodPut && isUpload(r.URL.Path) {
		return nil
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && kind == "application/json" {
		return nil
	}
	return fault.New(fault.Invalid, "unsupported_media_type", "the body must be JSON, with the content type application/json")
}

// isUpload is for the one route whose body is a file.
func isUpload(path string) bool {
	rest, ok := strings.CutPrefix(path, apiPath+"/sandboxes/")
	_, name, found := strings.Cut(rest, "/")
	return ok && found && name == "file"
}
