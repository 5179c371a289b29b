package causeway_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// internet is a fake internet inside the test's process: names, hosts with public addresses, and a
// certificate authority for them.
type internet struct {
	exchange
	listener net.Listener
	key      *ecdsa.PrivateKey
	root     *x509.Certificate

	mu        sync.Mutex
	zone      map[string][]netip.Addr
	turns     map[string][][]netip.Addr // answers to use once each before those of zone
	listeners map[string]chan<- net.Conn
	lookups   []string
	dialled   []string
	last      int // the last address that was assigned
}

func newInternet() (*internet, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fake internet"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	w := &internet{key: key, zone: map[string][]netip.Addr{}, turns: map[string][][]netip.Addr{}, listeners: map[string]chan<- net.Conn{}}
	if w.root, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	if w.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	w.Address = w.listener.Addr().String()
	w.Roots = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	go func() {
		for {
			conn, err := w.listener.Accept()
			if err != nil {
				return
			}
			go w.serve(conn)
		}
	}()
	return w, nil
}

// write makes gateways of a state directory use this fake internet.
func (w *internet) write(state string) error {
	data, err := json.Marshal(w.exchange)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(state, internetFile), data, 0o600)
}

// serve answers one lookup or dial of a gateway.
func (w *internet) serve(conn net.Conn) {
	var o exchangeRequest
	if err := readLine(conn, &o); err != nil {
		conn.Close()
		return
	}
	if o.Lookup != "" {
		_ = json.NewEncoder(conn).Encode(exchangeAnswer{Addresses: w.lookup(o.Lookup)})
		conn.Close()
		return
	}
	w.mu.Lock()
	w.dialled = append(w.dialled, o.Dial)
	to := w.listeners[o.Dial]
	w.mu.Unlock()
	if err := json.NewEncoder(conn).Encode(exchangeAnswer{Refused: to == nil}); err != nil || to == nil {
		conn.Close()
		return
	}
	to <- conn
}

func (w *internet) lookup(name string) []netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookups = append(w.lookups, name)
	if turns := w.turns[name]; len(turns) > 0 {
		w.turns[name] = turns[1:]
		return turns[0]
	}
	return w.zone[name]
}

// lookupsOf returns the lookups so far of names with a suffix.
func (w *internet) lookupsOf(suffix string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.lookups), func(n string) bool { return !strings.HasSuffix(n, suffix) })
}

// dials returns the dials so far of addresses with a prefix.
func (w *internet) dials(prefix string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.dialled), func(a string) bool { return !strings.HasPrefix(a, prefix) })
}

// setAddresses sets the addresses that a name resolves to.
func (w *internet) setAddresses(name string, addresses ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.zone[name] = parse(addresses)
}

// setAddressesInTurn makes the next lookups of a name return other addresses, in this order.
func (w *internet) setAddressesInTurn(name string, answers ...[]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range answers {
		w.turns[name] = append(w.turns[name], parse(a))
	}
}

func parse(addresses []string) (list []netip.Addr) {
	for _, a := range addresses {
		list = append(list, netip.MustParseAddr(a))
	}
	return list
}

// arrivals is a listener at an address of the fake internet.
type arrivals struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

func (a *arrivals) Accept() (net.Conn, error) {
	select {
	case c := <-a.conns:
		return c, nil
	case <-a.done:
		return nil, net.ErrClosed
	}
}

func (a *arrivals) Close() error { a.once.Do(func() { close(a.done) }); return nil }

func (a *arrivals) Addr() net.Addr { return a.addr }

// listen opens a port of hosts that have their own public address.
func (w *internet) listen(t testing.TB, port int, hostnames ...string) (net.Listener, string) {
	t.Helper()
	w.mu.Lock()
	w.last++
	address := fmt.Sprintf("93.184.%d.%d", w.last/250, w.last%250+1)
	if len(hostnames) > 0 && len(w.zone[hostnames[0]]) > 0 {
		address = w.zone[hostnames[0]][0].String() // another port of the same hosts
	}
	w.mu.Unlock()
	for _, n := range hostnames {
		w.setAddresses(n, address)
	}
	return w.listenAt(t, address, port), address
}

func (w *internet) listenAt(t testing.TB, address string, port int) net.Listener {
	t.Helper()
	a := &arrivals{conns: make(chan net.Conn), done: make(chan struct{}), addr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), uint16(port)))}
	in := make(chan net.Conn)
	go func() {
		for {
			select {
			case c := <-in:
				select {
				case a.conns <- c:
				case <-a.done:
					c.Close()
				}
			case <-a.done:
				return
			}
		}
	}()
	key := a.addr.String()
	w.mu.Lock()
	w.listeners[key] = in
	w.mu.Unlock()
	t.Cleanup(func() {
		w.mu.Lock()
		delete(w.listeners, key)
		w.mu.Unlock()
		a.Close()
	})
	return a
}

// leaf returns a certificate of the fake internet's authority.
func (w *internet) leaf(t testing.TB, hostnames ...string) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: hostnames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, w.root, w.key.Public(), w.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: w.key}
}

// request is what a web server received.
type request struct {
	Method, Host, Path, Query, Proto, Body string
	// From distinguishes connections.
	From   string
	Header http.Header
	At     time.Time
}

func (r request) auth() string { return r.Header.Get("Authorization") }

// web is a web server of the fake internet, with a list of its requests.
type web struct {
	address string
	mu      sync.Mutex
	list    []request
}

func (s *web) seen() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// web starts a web server on a port of some hosts, with TLS unless the port is 80. Without a
// handler it answers "hello from" and the host.
func (w *internet) web(t testing.TB, port int, answer http.HandlerFunc, hostnames ...string) *web {
	t.Helper()
	l, address := w.listen(t, port, hostnames...)
	s := &web{address: address}
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 32<<20))
		s.mu.Lock()
		s.list = append(s.list, request{
			Method: r.Method, Host: r.Host, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Proto: r.Proto, Body: string(body), From: r.RemoteAddr,
			Header: r.Header.Clone(), At: time.Now(),
		})
		s.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		if answer == nil {
			_, _ = io.WriteString(rw, "hello from "+r.Host)
			return
		}
		answer(rw, r)
	})}
	if port == 80 {
		go func() { _ = server.Serve(l) }()
	} else {
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{w.leaf(t, hostnames...)}}
		go func() { _ = server.ServeTLS(l, "", "") }()
	}
	t.Cleanup(func() { server.Close() })
	return s
}
