package proxy

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// FuzzHTTP sends arbitrary bytes where HTTP is expected. Upstream gets only requests that the one
// rule allows.
func FuzzHTTP(f *testing.F) {
	const head = "GET /ok/a HTTP/1.1\r\nHost: plain.good.test\r\n"
	for _, s := range []string{
		head + "\r\n",
		head + "\r\n" + strings.Replace(head, "/ok", "/no", 1) + "\r\n",
		head + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /no HTTP/1.1\r\nHost: x\r\n\r\n",
		head + "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
		head + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nGET /no HTTP/1.1\r\n\r\n",
		"GET http://evil.test/ok/ HTTP/1.1\r\nHost: plain.good.test\r\n\r\n",
		"GET /ok/../no HTTP/1.1\r\nHost: plain.good.test\r\n\r\n",
		"CONNECT evil.test:443 HTTP/1.1\r\nHost: plain.good.test\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"POST /ok/ HTTP/1.0\r\nHost: plain.good.test\r\nX-Http-Method-Override: DELETE\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	w := newEnvironment(f)
	up := w.serve("80", nil, "plain.good.test")
	b := w.newSandbox(`
level: minimal
network: {unlisted: deny, hosts: [{host: plain.good.test, ports: [80], rules: [{methods: [GET, POST], paths: ["/ok/**"], do: allow}]}]}
`)
	b.floods.connects.rate = 1 << 30
	at, err := b.resolve("plain.good.test")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		up.mu.Lock()
		up.requests = nil
		up.mu.Unlock()
		copyOfSandbox := *b
		copyOfSandbox.t = t
		c, err := copyOfSandbox.to(netip.AddrPortFrom(at, 80))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(2 * time.Second))
		c.Write(data)
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, c)
		for _, s := range up.log() {
			if s.Host != "plain.good.test" || !strings.HasPrefix(s.Path, "/ok/") && s.Path != "/ok" || s.Method != http.MethodGet && s.Method != http.MethodPost {
				t.Errorf("upstream got %+v, which the rule does not allow", s)
			}
			if s.Header.Get("X-Http-Method-Override") != "" && !strings.Contains("GET POST", strings.ToUpper(strings.TrimSpace(s.Header.Get("X-Http-Method-Override")))) {
				t.Errorf("upstream got the method override %+v", s)
			}
		}
	})
}
