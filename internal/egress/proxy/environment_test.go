package proxy

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/certs"
	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// environment is the network outside of the gateway: name servers, hosts with public addresses, and
// a certificate authority. Its hosts listen on loopback.
type environment struct {
	t       testing.TB
	key     *ecdsa.PrivateKey
	root    *x509.Certificate
	roots   *x509.CertPool
	lookups atomic.Int64
	dials   atomic.Int64

	mu      sync.Mutex
	zone    map[string][]netip.Addr
	answers map[string][][]netip.Addr // successive answers, which precede the zone
	at      map[string]string         // the listener's address by "public address:port"
	dialled []string
}

func newEnvironment(t testing.TB) *environment {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "world"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	w := &environment{t: t, key: key, root: root, roots: x509.NewCertPool(), zone: map[string][]netip.Addr{}, answers: map[string][][]netip.Addr{}, at: map[string]string{}}
	w.roots.AddCert(root)
	return w
}

func (w *environment) leaf(names ...string) tls.Certificate {
	w.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, w.root, w.key.Public(), w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: w.key}
}

func (w *environment) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	w.lookups.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if turn := w.answers[host]; len(turn) > 0 {
		w.answers[host] = turn[1:]
		return turn[0], nil
	}
	if a := w.zone[host]; len(a) > 0 {
		return a, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func (w *environment) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.dials.Add(1)
	w.mu.Lock()
	real, ok := w.at[address]
	w.dialled = append(w.dialled, address)
	w.mu.Unlock()
	if !ok {
		return nil, errors.New("connection refused")
	}
	return new(net.Dialer).DialContext(ctx, network, real)
}

// host is a server of the environment. It stores the requests that reach it.
type host struct {
	mu       sync.Mutex
	requests []seenRequest
	addr     netip.Addr
}

type seenRequest struct {
	Method, Host, Path, Auth, Proto, Body string
	Header                                http.Header
}

func (h *host) log() []seenRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]seenRequest(nil), h.requests...)
}

var lastAddress atomic.Uint32

// listen makes a server reachable under names at a new public address.
func (w *environment) listen(port string, hostnames ...string) (net.Listener, netip.Addr) {
	w.t.Helper()
	n := lastAddress.Add(1)
	a := netip.AddrFrom4([4]byte{93, 184, byte(n >> 8), byte(n%250 + 1)})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { ln.Close() })
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range hostnames {
		w.zone[name] = []netip.Addr{a}
	}
	w.at[a.String()+":"+port] = ln.Addr().String()
	return ln, a
}

// serve starts a web server: with TLS unless port is 80.
func (w *environment) serve(port string, answer http.HandlerFunc, hostnames ...string) *host {
	w.t.Helper()
	ln, a := w.listen(port, hostnames...)
	h := &host{addr: a}
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.mu.Lock()
		h.requests = append(h.requests, seenRequest{r.Method, r.Host, r.URL.EscapedPath(), r.Header.Get("Authorization"), r.Proto, string(body), r.Header.Clone()})
		h.mu.Unlock()
		if answer == nil {
			io.WriteString(rw, "hello from "+r.Host)
			return
		}
		answer(rw, r)
	})}
	if port != "80" {
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{w.leaf(hostnames...)}}
		go server.ServeTLS(ln, "", "")
	} else {
		go server.Serve(ln)
	}
	w.t.Cleanup(func() { server.Close() })
	return h
}

// recorder stores entries in memory.
type recorder struct {
	mu   sync.Mutex
	list []egress.Record
	fail atomic.Bool
	// failFirst makes entries about beginnings fail.
	failFirst atomic.Bool
}

func (r *recorder) Record(entry egress.Record) error {
	if r.fail.Load() || r.failFirst.Load() && entry.Begins {
		return errors.New("disk full")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, entry)
	return nil
}

// all returns the entries of some kinds, without those about beginnings.
func (r *recorder) all(kinds ...egress.Kind) []egress.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []egress.Record
	for _, entry := range r.list {
		if !entry.Begins && (len(kinds) == 0 || slices.Contains(kinds, entry.Kind)) {
			out = append(out, entry)
		}
	}
	return out
}

// people is an approver that stores the requests.
type people struct {
	mu     sync.Mutex
	asked  []egress.ApprovalRequest
	answer func(ctx context.Context, q egress.ApprovalRequest) (egress.ApprovalOutcome, error)
}

func (p *people) Ask(ctx context.Context, q egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
	p.mu.Lock()
	p.asked = append(p.asked, q)
	answer := p.answer
	p.mu.Unlock()
	if answer == nil {
		return egress.ApprovalOutcome{State: "denied", Approval: "ap1"}, nil
	}
	return answer(ctx, q)
}

func (p *people) questions() []egress.ApprovalRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]egress.ApprovalRequest(nil), p.asked...)
}

// testSandbox is a sandbox with its handler.
type testSandbox struct {
	*Handler
	t       testing.TB
	env     *environment
	records *recorder
	people  *people
	trust   *x509.CertPool
}

func compiled(t testing.TB, text string) *policy.Policy {
	t.Helper()
	d, err := policy.Parse([]byte("policy: v1\n" + text))
	if err != nil {
		t.Fatalf("Parse: %v in\n%s", err, text)
	}
	p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: d})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (w *environment) newSandbox(text string, change ...func(*Config)) *testSandbox {
	w.t.Helper()
	ca, err := certs.New("box1", time.Now)
	if err != nil {
		w.t.Fatal(err)
	}
	b := &testSandbox{t: w.t, env: w, records: &recorder{}, people: &people{}, trust: x509.NewCertPool()}
	b.trust.AppendCertsFromPEM(ca.Certificate())
	c := Config{
		Sandbox: "box1", Policy: compiled(w.t, text), CA: ca, Recorder: b.records, Asker: b.people,
		Dialer: &names.Dialer{Resolver: w, DialAddress: w.dial}, Roots: w.roots,
	}
	for _, f := range change {
		f(&c)
	}
	if b.Handler, err = New(c); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(b.Close)
	return b
}

// attempt is a connection attempt of the sandbox.
type attempt struct {
	dst     netip.AddrPort
	inside  net.Conn
	outside net.Conn
	once    sync.Once
	decided chan bool
}

func (a *attempt) Destination() netip.AddrPort { return a.dst }

func (a *attempt) Accept() (net.Conn, error) {
	a.once.Do(func() { a.decided <- true })
	return a.outside, nil
}

func (a *attempt) Refuse() {
	a.once.Do(func() {
		a.outside.Close()
		a.inside.Close()
		a.decided <- false
	})
}

var errRefused = errors.New("connection refused")

// to makes a connection attempt to an address.
func (b *testSandbox) to(dst netip.AddrPort) (net.Conn, error) {
	b.t.Helper()
	in, out := pair(b.t)
	a := &attempt{dst: dst, inside: in, outside: out, decided: make(chan bool, 1)}
	go b.take(a)
	if !<-a.decided {
		return nil, errRefused
	}
	return in, nil
}

// pair returns two ends of a connection that can be closed on one side, like TCP.
func pair(t testing.TB) (inside, outside net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	in, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	out, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return in, out
}

// query builds a DNS query.
func query(t testing.TB, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	n, err := dnsmessage.NewName(name + ".")
	if err != nil {
		t.Fatal(err)
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}}}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// resolve asks the sandbox's name server.
func (b *testSandbox) resolve(name string) (netip.Addr, error) {
	b.t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(b.Names(query(b.t, name, dnsmessage.TypeA), 1232)); err != nil {
		return netip.Addr{}, err
	}
	for _, a := range m.Answers {
		if r, ok := a.Body.(*dnsmessage.AResource); ok {
			return netip.AddrFrom4(r.A), nil
		}
	}
	return netip.Addr{}, errors.New("no such host: " + m.RCode.String())
}

// dial connects to a name as a program in the sandbox does.
func (b *testSandbox) dial(name string, port int) (net.Conn, error) {
	a, err := netip.ParseAddr(name)
	if err != nil {
		if a, err = b.resolve(name); err != nil {
			return nil, err
		}
	}
	return b.to(netip.AddrPortFrom(a, uint16(port)))
}

// client returns an HTTP client in the sandbox.
func (b *testSandbox) client(h2 bool) *http.Client {
	tr := &http.Transport{
		DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			a, err := netip.ParseAddrPort("0.0.0.0:" + port)
			if err != nil {
				return nil, err
			}
			return b.dial(host, int(a.Port()))
		},
		TLSClientConfig:   &tls.Config{RootCAs: b.trust},
		ForceAttemptHTTP2: h2, DisableCompression: true,
	}
	b.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get fetches a URL and returns status and body.
func (b *testSandbox) get(url string) (int, string) {
	b.t.Helper()
	return b.do("GET", url, "", nil)
}

func (b *testSandbox) do(method, url, body string, header http.Header) (int, string) {
	b.t.Helper()
	return b.with(b.client(false), method, url, body, header)
}

func (b *testSandbox) with(c *http.Client, method, url, body string, header http.Header) (int, string) {
	b.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, url, in)
	if err != nil {
		b.t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	if h := header.Get("Host"); h != "" {
		r.Host = h
		r.Header.Del("Host")
	}
	resp, err := c.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, string(text) + " then " + err.Error()
	}
	return resp.StatusCode, string(text)
}

// tls opens a connection and makes a TLS handshake on it with some name.
func (b *testSandbox) tls(dialled, serverName string, roots *x509.CertPool) (*tls.Conn, error) {
	b.t.Helper()
	c, err := b.dial(dialled, 443)
	if err != nil {
		return nil, err
	}
	b.t.Cleanup(func() { c.Close() })
	c.SetDeadline(hosttest.Deadline())
	t := tls.Client(c, &tls.Config{RootCAs: roots, ServerName: serverName, NextProtos: []string{"http/1.1"}, InsecureSkipVerify: serverName == ""})
	return t, t.Handshake()
}

// raw sends bytes and returns all data that comes back: complete responses, and the data that
// follows soon.
func (b *testSandbox) raw(c net.Conn, text string) string {
	b.t.Helper()
	c.SetDeadline(hosttest.Deadline())
	if _, err := io.WriteString(c, text); err != nil {
		return err.Error()
	}
	var out []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		out = append(out, buf[:n]...)
		if err != nil {
			return string(out)
		}
		// A kept-alive connection does not end by itself.
		if isCompleteHTTP(text, out) {
			c.SetReadDeadline(time.Now().Add(hosttest.Patience(250 * time.Millisecond)))
		}
	}
}

// proxied returns a client that uses the gateway's proxy port.
func (b *testSandbox) proxied() *http.Client {
	tr := &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "10.199.0.1:3128"}),
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return b.to(netip.AddrPortFrom(egress.Gateway, egress.ProxyPort))
		},
		TLSClientConfig: &tls.Config{RootCAs: b.trust},
	}
	b.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}
