package crannog

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/crannog/crannog/internal/guest/guestboot"
)

// HTTPClient returns an HTTP client for programs that listen inside: a request to
// "http://localhost:8080/x" reaches port 8080 of the sandbox's loopback. WebSockets work
// too, other protocols do not.
func (s *Sandbox) HTTPClient() *http.Client {
	return &http.Client{
		Transport:     portTransport{s},
		CheckRedirect: s.sameSandbox,
	}
}

// sameSandbox refuses redirects of a program inside to another host, because the host's name would
// also be resolved to the sandbox, which is never intended.
func (s *Sandbox) sameSandbox(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return fmt.Errorf("crannog: stopped after %d redirects", len(via))
	}
	if !localName(req.URL.Hostname()) {
		return http.ErrUseLastResponse
	}
	return nil
}

func localName(host string) bool {
	return host == "localhost" || host == "127.0.0.1" || host == "::1"
}

type portTransport struct{ sandbox *Sandbox }

func (t portTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !localName(req.URL.Hostname()) || req.URL.Scheme != "http" {
		return nil, fmt.Errorf("crannog: %s is not a port of the sandbox, such as http://localhost:8080", req.URL.Redacted())
	}
	port := 80
	if p := req.URL.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("crannog: %q is not a port", p)
		}
		port = int(n)
	}
	base, err := url.Parse(t.sandbox.client.base)
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	if out.Host == "" {
		out.Host = req.URL.Host
	}
	out.URL.Scheme, out.URL.Host = base.Scheme, base.Host
	maps.Copy(out.Header, t.sandbox.dataHeader(port))
	if port != guestboot.DevToolsPort {
		// The token gives access to the guest, so a program inside must not see it. The server
		// requires it for the browser, and removes it.
		out.Header.Del("X-Access-Token")
	}
	t.sandbox.addTrafficToken(out.Header)
	if transport := t.sandbox.client.http.Transport; transport != nil {
		return transport.RoundTrip(out)
	}
	return http.DefaultTransport.RoundTrip(out)
}

// addTrafficToken adds the token for a private port.
func (s *Sandbox) addTrafficToken(h http.Header) {
	if token := s.Info().TrafficToken; token != "" {
		h.Set("E2b-Traffic-Access-Token", token)
	}
}
