package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/crannog/crannog/internal/fault"
)

// newTransport returns a transport for one registry. Like other registry clients, it uses the
// proxies of the environment.
func (c *Client) newTransport(registry string) http.RoundTripper {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   15 * time.Second,
		ResponseHeaderTimeout: c.o.Stall,
		MaxIdleConnsPerHost:   c.o.Parallel,
		IdleConnTimeout:       30 * time.Second,
		ForceAttemptHTTP2:     true,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if c.o.Rules.insecure(registry) {
		t.TLSClientConfig.InsecureSkipVerify = true // the operator has listed this registry
	}
	return t
}

// guard refuses requests without TLS to hosts that the rules do not list. The registry library
// would send them to each name that looks local.
type guard struct {
	inner http.RoundTripper
	rules Rules
	stall time.Duration
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !g.rules.insecure(r.URL.Host) {
		return nil, fault.Newf(fault.Denied, "registry_insecure", "%s is not reached with TLS", r.URL.Host).
			WithHint("to allow that, add it to the setting image_insecure")
	}
	resp, err := g.inner.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = newStallReader(resp.Body, g.stall)
	return resp, nil
}

// stallReader fails when no data arrives for a while. Closing the body in another goroutine ends a
// blocked read.
type stallReader struct {
	io.ReadCloser
	timer *time.Timer
	stall time.Duration
	fired chan struct{}
}

// newStallReader starts the timer of a body.
func newStallReader(body io.ReadCloser, stall time.Duration) io.ReadCloser {
	s := &stallReader{ReadCloser: body, stall: stall, fired: make(chan struct{})}
	s.timer = time.AfterFunc(stall, func() {
		close(s.fired)
		body.Close()
	})
	return s
}

// Read implements io.Reader.
func (s *stallReader) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if n > 0 && s.timer.Stop() {
		s.timer.Reset(s.stall)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		select {
		case <-s.fired:
			err = fault.Newf(fault.Unavailable, "registry_stalled", "the registry has sent nothing for %v", s.stall)
		default:
		}
	}
	return n, err
}

// Close implements io.Closer.
func (s *stallReader) Close() error {
	s.timer.Stop()
	return s.ReadCloser.Close()
}

// checkRedirect refuses a redirection to an address of a private network. Through such a
// redirection, a registry could reach services of this host, such as the one that provides cloud
// credentials. Blobs are often served by another host, but that has a name.
func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) > 5 {
		return errors.New("more than 5 redirections")
	}
	host := r.URL.Hostname()
	if host == via[0].URL.Hostname() {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err == nil && !isPublic(ip.Unmap()) {
		return fault.Newf(fault.Denied, "registry_redirect", "%s redirects to %s, an address of a private network", via[0].URL.Host, host)
	}
	return nil
}

// isPublic reports whether an address is outside of private and special networks.
func isPublic(ip netip.Addr) bool {
	return !ip.IsPrivate() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsUnspecified() && !ip.IsMulticast()
}

// explain converts an error of a registry into one that a person can act on.
func explain(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if known, ok := errors.AsType[*fault.Error](err); ok {
		return known
	}
	refusal, ok := errors.AsType[*transport.Error](err)
	if !ok {
		return fault.Wrap(err, fault.Unavailable, "registry_unreachable", fmt.Sprintf("the registry of %s cannot be reached", what)).
			WithHint("the log of the server has the cause; the setting image_mirrors adds mirrors")
	}
	switch refusal.StatusCode {
	case http.StatusNotFound:
		return fault.Wrap(err, fault.NotFound, "image_not_found", fmt.Sprintf("the registry has no image %s", what))
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.Wrap(err, fault.Denied, "registry_denied", fmt.Sprintf("the registry does not serve %s: it does not exist, or it needs other credentials", what)).
			WithHint("docker login, or a credential helper in ~/.docker/config.json")
	case http.StatusTooManyRequests:
		return fault.Wrap(err, fault.Exhausted, "registry_rate_limit", "the registry accepts no more requests from this address for now").
			WithHint("log in, or add a mirror to the setting image_mirrors")
	}
	return fault.Wrap(err, fault.Unavailable, "registry_failed", fmt.Sprintf("the registry of %s answers with status %d", what, refusal.StatusCode))
}
