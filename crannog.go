// Package crannog runs untrusted programs in sandboxes, from Go.
//
// A Client creates sandboxes on a server, or in this process with Local. A Sandbox
// runs commands like those of os/exec, and its files are an fs.FS:
//
//	client, err := crannog.New(crannog.FromEnv())
//	…
//	sb, err := client.Create(ctx, crannog.Timeout(time.Minute))
//	…
//	defer sb.Kill(ctx)
//	out, err := sb.CommandContext(ctx, "python3", "-c", "print(6*7)").Output()
package crannog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Client talks to one server. Its methods may be called concurrently.
type Client struct {
	base   string
	key    string
	http   *http.Client
	closer func() error
}

// Option configures New.
type Option func(*options) error

type options struct {
	base       string
	key        string
	socket     string
	httpClient *http.Client
}

// URL sets the address of the server, such as "http://127.0.0.1:7070".
func URL(base string) Option {
	return func(o *options) error {
		u, err := url.Parse(base)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("crannog: %q is not the URL of a server", base)
		}
		o.base = strings.TrimRight(base, "/")
		return nil
	}
}

// Key sets the API key.
func Key(key string) Option {
	return func(o *options) error { o.key = key; return nil }
}

// Socket connects to a local server by its Unix socket, which needs no key.
func Socket(path string) Option {
	return func(o *options) error { o.socket = path; return nil }
}

// HTTP makes the client send every request with httpClient.
func HTTP(httpClient *http.Client) Option {
	return func(o *options) error { o.httpClient = httpClient; return nil }
}

// FromEnv reads the server's address from CRANNOG_URL or E2B_API_URL and the key from
// CRANNOG_KEY or E2B_API_KEY.
func FromEnv() Option {
	return func(o *options) error {
		o.key = firstEnv("CRANNOG_KEY", "E2B_API_KEY")
		if base := firstEnv("CRANNOG_URL", "E2B_API_URL"); base != "" {
			return URL(base)(o)
		}
		return nil
	}
}

func firstEnv(names ...string) string {
	for _, name := range names {
		if v := os.Getenv(name); v != "" {
			return v
		}
	}
	return ""
}

// DefaultURL is the default address of a server.
const DefaultURL = "http://127.0.0.1:7070"

// New returns a client. It does not connect to the server yet.
func New(opts ...Option) (*Client, error) {
	o := options{base: DefaultURL}
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	if o.httpClient != nil && o.socket != "" {
		return nil, errors.New("crannog: Socket and HTTP exclude each other")
	}
	httpClient := o.httpClient
	closer := func() error { return nil }
	if httpClient == nil {
		transport := newTransport(dialerOf(o.socket))
		httpClient = &http.Client{Transport: transport, CheckRedirect: refuseRedirect}
		closer = func() error { transport.CloseIdleConnections(); return nil }
	}
	if o.socket != "" && o.base == DefaultURL {
		o.base = "http://localhost" // errors contain the base URL, and no server listens at DefaultURL
	}
	return &Client{base: o.base, key: o.key, http: httpClient, closer: closer}, nil
}

// refuseRedirect makes an HTTP client return a redirect instead of following it. If a program in
// the sandbox has taken over the guest, it could redirect a call with its method, body and token.
// The target could be an address that only the caller can reach, or the server's API with the
// rights of a local caller.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

func dialerOf(socket string) dialer {
	if socket == "" {
		return (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "unix", socket)
	}
}

// newTransport returns a transport that keeps enough idle connections for many concurrent commands.
// It requests no compression, which would only cost time on one machine.
func newTransport(dial dialer) *http.Transport {
	return &http.Transport{
		DialContext:         dial,
		Proxy:               nil,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
	}
}

// Close releases the resources of the client. It ends the ephemeral sandboxes of a Local
// client.
func (c *Client) Close() error { return c.closer() }
