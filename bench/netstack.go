package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"os"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
)

// netStack is the network of a sandbox in this process, without the sandbox. 256 real sandboxes
// would measure the machine's memory instead of the gateway's.
type netStack struct {
	*attachmenttest.Peer
	client *http.Client
}

// openStack opens the sandbox's end of an attachment.
func openStack(end *os.File, roots []byte) (*netStack, error) {
	sb, err := attachmenttest.Open(end)
	if err != nil {
		return nil, err
	}
	n := &netStack{Peer: sb}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	n.client = &http.Client{Transport: &http.Transport{DialContext: n.dial, TLSClientConfig: &tls.Config{RootCAs: pool}}}
	return n, nil
}

func (n *netStack) close() error {
	n.client.CloseIdleConnections()
	return n.Close()
}

// dial looks up a name at the gateway and connects, as a program in a sandbox does.
func (n *netStack) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	names := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return n.DialUDP(netip.AddrPortFrom(egress.Gateway, 53))
	}}
	found, err := names.LookupNetIP(ctx, "ip4", host)
	if err != nil {
		return nil, err
	}
	return n.Dial(ctx, netip.AddrPortFrom(found[0].Unmap(), 443))
}
