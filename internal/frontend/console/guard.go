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

// guardHeaders sets the security headers of every response, errors included.
func guardHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), usb=(), serial=(), payment=()")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
}

// checkHost rejects an unknown host name. With DNS rebinding, another site's name can lead to this
// server, and for a browser its pages would have the console's origin.
func (c *Console) checkHost(r *http.Request) error {
	if isOwnName(hostOf(r.Host), r, c.o.Hosts) {
		return nil
	}
	return fault.New(fault.Denied, "host_not_allowed", "the console does not have this host name").
		WithHint("use the address that crannog serve prints, or add the name to the setting mcp_hosts")
}

// hostOf returns a normalized host without its port.
func hostOf(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// isOwnName reports whether host is a name or an address of this server.
func isOwnName(host string, r *http.Request, names []string) bool {
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
	// DNS cannot redirect a numeric address: a browser that uses the address has really connected
	// to it. It still has to be the address of this connection.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || local.Network() == "unix" {
		return addr.IsLoopback()
	}
	at, err := netip.ParseAddrPort(local.String())
	return addr.IsLoopback() || err == nil && at.Addr().Unmap() == addr.Unmap()
}

// checkOrigin rejects requests from pages with another origin, such as a sandbox's preview, because
// the browser sends the cookie for all pages of the same site.
func checkOrigin(r *http.Request) error {
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return crossOriginError()
		}
	}
	origins := r.Header.Values("Origin")
	for _, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || !strings.EqualFold(u.Host, r.Host) {
			return crossOriginError()
		}
	}
	// A browser sends the origin with a WebSocket handshake. This check alone prevents another site
	// from opening one.
	if isUpgrade(r) && len(origins) != 1 {
		return crossOriginError()
	}
	return nil
}

// isCanonicalPath reports whether a path is in the form that pages use. Handlers behind this check
// may split another form differently: with an escaped slash, another route could answer than the
// one whose scope was checked, and a viewer could read contents of files. The mux would also
// redirect a browser for a path that is not clean.
func isCanonicalPath(r *http.Request) bool {
	written := r.URL.EscapedPath()
	return strings.HasPrefix(written, apiPath+"/") && !strings.Contains(strings.ToLower(written), "%2f") && path.Clean(r.URL.Path) == r.URL.Path
}

func crossOriginError() error {
	return fault.New(fault.Denied, "cross_origin", "only the console's own pages may send this request")
}

func isUpgrade(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// isUnsafeMethod reports whether requests with a method may change something.
func isUnsafeMethod(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// checkBodyType rejects a body that an HTML form of any page could send. Files are uploaded by PUT,
// which forms cannot send.
func checkBodyType(r *http.Request) error {
	if !isUnsafeMethod(r.Method) || r.ContentLength == 0 || r.Method == http.MethodPut && isUpload(r.URL.Path) {
		return nil
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && kind == "application/json" {
		return nil
	}
	return fault.New(fault.Invalid, "unsupported_media_type", "the body must be JSON, with the content type application/json")
}

// isUpload reports whether a request is for the only route whose body is a file.
func isUpload(path string) bool {
	rest, ok := strings.CutPrefix(path, apiPath+"/sandboxes/")
	_, name, found := strings.Cut(rest, "/")
	return ok && found && name == "file"
}
