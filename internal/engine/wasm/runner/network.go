package runner

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/relay"
)

// rootsPath is the file with the certificate roots that the server writes into each sandbox with a
// network (package certs).
const rootsPath = "/etc/ssl/certs/ca-certificates.crt"

// Time limits of a request. Models may think for minutes before they answer.
const (
	headerTimeout   = 5 * time.Minute
	exchangeTimeout = 15 * time.Minute
)

// maxHeaders bounds the headers of a request and of a response.
const maxHeaders = 64 << 10

// network is the runner's connection to the egress gateway. Its socket is opened by the guest, and
// the certificate roots before the process loses its rights.
type network struct {
	socket *os.File // nil in a sandbox without a network
	roots  *os.File // nil if the sandbox has none
}

// openNetwork opens what requests need. It returns an empty network for a sandbox without one.
func (r request) openNetwork() (*network, error) {
	n := &network{}
	if !r.network {
		return n, nil
	}
	fd := int(r.networkFile())
	// Only a non-blocking descriptor is polled: a read of the other kind would keep a thread.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	n.socket = os.NewFile(uintptr(fd), "network")
	roots, err := os.Open(rootsPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("network: %w", err), n.socket.Close())
	}
	n.roots = roots
	return n, nil
}

// close ends the network. The guest then knows that the module makes no more requests.
func (n *network) close() {
	if n.socket != nil {
		_ = n.socket.Close() // a session may have closed it
	}
	if n.roots != nil {
		_ = n.roots.Close() // nothing was written
	}
}

// transport returns the transport of all requests of the module. All of them go to the gateway's
// proxy, and names are resolved there.
func (n *network) transport() *http.Transport {
	session := sync.OnceValues(func() (*relay.Outward, error) {
		if _, err := n.socket.Write([]byte{0}); err != nil {
			return nil, err
		}
		o, err := relay.NewOutward(n.socket)
		if err != nil {
			return nil, err
		}
		return o, o.Greet()
	})
	return &http.Transport{
		// The name of the proxy is not used: dialling always opens a stream to the gateway.
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "gateway"}),
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			s, err := session()
			if err != nil {
				return nil, err
			}
			return s.Open()
		},
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: n.pool()},
		// A refused tunnel is an answer of the gateway, with the reason.
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
			if answer.StatusCode == http.StatusOK {
				return nil
			}
			return &refusedTunnel{answer.StatusCode, answer.Header.Clone()}
		},
		DisableCompression: true, ResponseHeaderTimeout: headerTimeout, TLSHandshakeTimeout: headerTimeout,
		MaxResponseHeaderBytes: maxHeaders, MaxIdleConnsPerHost: 2, MaxIdleConns: maxHandles, IdleConnTimeout: time.Minute,
	}
}

// pool returns the certificate roots. Without any, no certificate is accepted.
func (n *network) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	if n.roots != nil {
		const maxRoots = 16 << 20
		if text, err := io.ReadAll(io.LimitReader(n.roots, maxRoots)); err == nil {
			pool.AppendCertsFromPEM(text)
		}
	}
	return pool
}

// refusedTunnel is the gateway's refusal of a connection for HTTPS.
type refusedTunnel struct {
	status int
	header http.Header
}

func (r *refusedTunnel) Error() string { return "the gateway refused the connection" }
