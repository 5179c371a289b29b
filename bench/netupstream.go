package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Hosts of the upstream, by the policy's treatment.
const (
	hostSplice   = "unopened.test" // TLS is not decrypted
	hostOpen     = "opened.test"   // TLS is decrypted, nothing is set or redacted
	hostSecret   = "sealed.test"   // a secret is set, responses are redacted
	hostTen      = "ten.test"      // decrypted, 10 rules
	hostThousand = "thousand.test" // decrypted, 1,000 rules
)

var smallAnswer = []byte("{\"answer\": \"of some sixty bytes, as an API gives them out\"}\n")

// endless is a reader of varying bytes, in which redaction finds nothing.
type endless struct{}

var endlessData = sync.OnceValue(func() []byte {
	p := make([]byte, 64<<10)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
})

func (endless) Read(p []byte) (int, error) { return copy(p, endlessData()), nil }

// upstream is the server at the end of every network path.
type upstream struct {
	address string
	roots   []byte // PEM
	server  *http.Server
}

func startUpstream(ctx context.Context) (*upstream, error) {
	roots, config, err := upstreamTLS(hostSplice, hostOpen, hostSecret, hostTen, hostThousand)
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &upstream{address: l.Addr().String(), roots: roots, server: &http.Server{
		Handler: upstreamHandler(), TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0), // connections may end at any time
	}}
	go func() { _ = u.server.ServeTLS(l, "", "") }()
	return u, nil
}

func (u *upstream) close() error { return u.server.Close() }

func upstreamHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /answer", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(smallAnswer) })
	mux.HandleFunc("GET /bytes", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.FormValue("n"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		for piece := endlessData(); n > 0; n -= int64(len(piece)) {
			if _, err := w.Write(piece[:min(n, int64(len(piece)))]); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("POST /upload", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, make([]byte, 256<<10)); err == nil {
			_, _ = w.Write(smallAnswer)
		}
	})
	return mux
}

// upstreamTLS creates a certificate authority and a server's certificate.
func upstreamTLS(hosts ...string) (roots []byte, config *tls.Config, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "upstream of a measurement"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: hosts, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	leafDER, leafErr := x509.CreateCertificate(rand.Reader, leaf, ca, leafKey.Public(), key)
	if err := errors.Join(err, leafErr); err != nil {
		return nil, nil, err
	}
	config = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leafDER}, PrivateKey: leafKey}}, NextProtos: []string{"h2", "http/1.1"}}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), config, nil
}
