package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// clientTLS returns a configuration that trusts the upstream.
func clientTLS(t *testing.T, u *upstream) *tls.Config {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(u.roots) {
		t.Fatal("the upstream has no certificate")
	}
	return &tls.Config{RootCAs: roots}
}

func testUpstream(t *testing.T) *upstream {
	t.Helper()
	u, err := startUpstream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.close() })
	return u
}

// TestJobsAreDone checks that every kind of job works over both versions of HTTP, and that each
// measured round has a duration.
func TestJobsAreDone(t *testing.T) {
	u := testUpstream(t)
	for _, h2 := range []bool{false, true} {
		for _, j := range []netJob{
			{Kind: jobKept, N: 3}, {Kind: jobNew, N: 2}, {Kind: jobLookup, N: 4},
			{Kind: jobDownload, N: 2, Bytes: 300_000}, {Kind: jobUpload, N: 2, Bytes: 300_000},
		} {
			j.Host, j.Port, j.Dial, j.H2, j.Roots = hostOpen, 443, u.address, h2, u.roots
			took, err := j.do(t.Context())
			if err != nil || len(took) != j.N {
				t.Errorf("%s, HTTP/2 %t: %d rounds, %v", j.Kind, h2, len(took), err)
			}
			for _, d := range took {
				if d <= 0 && j.Kind != jobLookup {
					t.Errorf("%s took %v", j.Kind, took)
				}
			}
		}
	}
}

// connectProxy starts a proxy that passes CONNECT requests for one target to the upstream and
// refuses others. It returns the requests that it got, and its address.
func connectProxy(t *testing.T, network, address, target string, to *upstream) (*sync.Map, string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var requests sync.Map
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				req, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				requests.Store(req.Method+" "+req.Host, true)
				if req.Host != target {
					_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
					return
				}
				out, err := net.Dial("tcp", to.address)
				if err != nil {
					return
				}
				defer out.Close()
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
				go func() { _, _ = io.Copy(out, conn) }()
				_, _ = io.Copy(conn, out)
			}()
		}
	}()
	return &requests, l.Addr().String()
}

func TestJobsThroughAProxy(t *testing.T) {
	u := testUpstream(t)
	socket := filepath.Join(t.TempDir(), "proxy")
	overTCP, address := connectProxy(t, "tcp", "127.0.0.1:0", hostOpen+":443", u)
	overSocket, _ := connectProxy(t, "unix", socket, hostOpen+":443", u)
	for proxy, requests := range map[string]*sync.Map{address: overTCP, "unix:" + socket: overSocket} {
		j := netJob{Kind: jobNew, Host: hostOpen, Port: 443, Dial: "192.0.2.1:1", Proxy: proxy, Roots: u.roots, N: 1}
		if took, err := j.do(t.Context()); err != nil || len(took) != 1 {
			t.Errorf("a request through the proxy %s: got %v, %v, want one duration", proxy, took, err)
		}
		if _, ok := requests.Load("CONNECT " + hostOpen + ":443"); !ok {
			t.Errorf("the proxy %s got no request", proxy)
		}
		j.Port = 444
		if _, err := j.do(t.Context()); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("%s: a refused connection: %v", proxy, err)
		}
	}
}

// TestWrongAnswersAreErrors checks that a measurement does not count answers of another size, HTTP
// version or server.
func TestWrongAnswersAreErrors(t *testing.T) {
	u := testUpstream(t)
	good := netJob{Kind: jobKept, Host: hostOpen, Port: 443, Dial: u.address, Roots: u.roots, N: 1}
	for name, change := range map[string]func(*netJob){
		"another authority": func(j *netJob) { j.Roots = nil },
		"another host":      func(j *netJob) { j.Host = "other.test" },
		"no server":         func(j *netJob) { j.Dial = "127.0.0.1:1" },
		"no proxy":          func(j *netJob) { j.Proxy = "127.0.0.1:1" },
	} {
		j := good
		change(&j)
		if took, err := j.do(t.Context()); err == nil || !strings.Contains(err.Error(), string(j.Kind)) {
			t.Errorf("%s: got %v, %v, want an error that names the job", name, took, err)
		}
	}
	c := &netPath{job: good, at: u.address}
	c.job.H2 = true // the transport below offers only HTTP/1.1
	c.client = &http.Client{Transport: &http.Transport{DialContext: c.dial, TLSClientConfig: clientTLS(t, u)}}
	if err := c.ask(t.Context()); err == nil || !strings.Contains(err.Error(), "HTTP/1") {
		t.Errorf("another version of HTTP: %v", err)
	}
	c.job.H2 = false
	if err := c.get(t.Context(), c.sharedClient(), "/answer", 7); err == nil || !strings.Contains(err.Error(), "bytes of 7") {
		t.Errorf("another size: %v", err)
	}
	if err := c.get(t.Context(), c.sharedClient(), "/bytes?n=many", 7); err == nil || !strings.Contains(err.Error(), "400") {
		t.Errorf("an error of the server: %v", err)
	}
}
