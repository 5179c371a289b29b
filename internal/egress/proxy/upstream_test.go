package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestNamesAreNotSentOut(t *testing.T) {
	w := newEnvironment(t)
	b := w.newSandbox(`
level: minimal
network:
  unlisted: deny
  hosts:
    - {host: api.good.test, rules: [{do: allow}]}
    - {host: "*.wild.test", rules: [{do: allow}]}
`)
	for i := range 20 {
		if _, err := b.resolve(fmt.Sprintf("data%d.evil.test", i)); err == nil {
			t.Error("a denied name has an address")
		}
		if a, err := b.resolve(fmt.Sprintf("data%d.wild.test", i)); err != nil || !egress.Synthetic.Contains(a) {
			t.Errorf("a name under a wildcard: got %v %v, want a synthetic address", a, err)
		}
	}
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeTXT, dnsmessage.TypeMX, 10, dnsmessage.TypeALL, dnsmessage.TypeAXFR} {
		var m dnsmessage.Message
		if err := m.Unpack(b.Names(query(t, "api.good.test", kind), 1232)); err != nil || m.RCode != dnsmessage.RCodeRefused || len(m.Answers) != 0 {
			t.Errorf("query of type %v: got %v %+v, want refused", kind, err, m)
		}
	}
	for _, kind := range []dnsmessage.Type{65, 64, dnsmessage.TypeAAAA} {
		var m dnsmessage.Message
		if err := m.Unpack(b.Names(query(t, "api.good.test", kind), 1232)); err != nil || m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) != 0 {
			t.Errorf("query of type %v: got %v %+v, want no answers", kind, err, m)
		}
	}
	if n := w.lookups.Load(); n != 0 {
		t.Errorf("%d lookups left the gateway, want 0", n)
	}
	if n := len(b.records.all(egress.KindDNS)); n != 48 {
		t.Errorf("%d entries for 48 queries", n)
	}
	first, _ := b.resolve("api.good.test")
	if again, err := b.resolve("API.good.test."[:13]); err != nil || again != first {
		t.Errorf("two spellings of a name have the addresses %v and %v: %v", first, again, err)
	}
}

func TestMisleadingHeadersAreRemoved(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Alt-Svc", `h3=":443"`)
		rw.Header().Set("Proxy-Authenticate", "Basic")
		rw.Header().Set("X-Kept", "yes")
	}, "api.good.test")
	b := w.newSandbox(oneHostPolicy)
	resp, err := b.client(true).Get("https://api.good.test/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.Header.Get("X-Kept") != "yes" || resp.Header.Get("Alt-Svc") != "" || resp.Header.Get("Proxy-Authenticate") != "" {
		t.Errorf("the response has the header %v, want X-Kept but neither Alt-Svc nor Proxy-Authenticate", resp.Header)
	}
}

func TestForbiddenAddressIsNotDialled(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	for _, host := range []string{"api.good.test", "pass.good.test"} {
		b := w.newSandbox(oneHostPolicy)
		for _, a := range []string{"10.0.0.5", "169.254.169.254", "0.0.0.0", "127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "::1", "fd00:ec2::254", "mixed"} {
			list := []netip.Addr{up.addr, netip.MustParseAddr("10.0.0.5")}
			if a != "mixed" {
				list = []netip.Addr{netip.MustParseAddr(a)}
			}
			w.mu.Lock()
			w.zone[host] = list
			w.mu.Unlock()
			code, body := b.get("https://" + host + "/")
			if code != http.StatusBadGateway || !strings.Contains(body, `"effect": "deny"`) {
				t.Errorf("%s at %s: got %d %s, want 502 with a denial", host, a, code, body)
			}
		}
		hosttest.Eventually(t, "each request has an entry", func() bool { return len(b.records.all(egress.KindHTTP)) == 10 })
		for _, r := range b.records.all(egress.KindHTTP) {
			if r.Effect != egress.Deny || r.Status != 502 {
				t.Errorf("the entry is %+v, want a denial", r)
			}
		}
	}
	if w.dials.Load() != 0 {
		t.Errorf("the gateway dialled %v, want nothing", w.dialled)
	}
	w.mu.Lock()
	w.zone["api.good.test"] = []netip.Addr{up.addr}
	w.mu.Unlock()
	if code, _ := w.newSandbox(oneHostPolicy).get("https://api.good.test/"); code != 200 {
		t.Errorf("control: a public address: got %d, want 200", code)
	}
}

func TestPrivateAddressNeedsCIDR(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "db.good.test")
	private := netip.MustParseAddr("10.20.0.7")
	w.mu.Lock()
	w.at["10.20.0.7:443"] = w.at[up.addr.String()+":443"]
	w.zone["db.good.test"] = []netip.Addr{private}
	w.mu.Unlock()
	text := `
level: minimal
network: {unlisted: deny, hosts: [{host: db.good.test, %s rules: [{methods: [GET], do: allow}]}]}`
	if code, body := w.newSandbox(fmt.Sprintf(text, "")).get("https://db.good.test/"); code != 502 || !strings.Contains(body, policy.RulePrivate) {
		t.Errorf("without cidrs: got %d %s, want a denial by %s", code, body, policy.RulePrivate)
	}
	if code, _ := w.newSandbox(fmt.Sprintf(text, "cidrs: [10.20.0.0/24],")).get("https://db.good.test/"); code != 200 {
		t.Errorf("with cidrs: got %d, want 200", code)
	}
}

func TestEachDialResolvesOnce(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	w.mu.Lock()
	w.answers["api.good.test"] = [][]netip.Addr{{up.addr}}
	w.zone["api.good.test"] = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	w.mu.Unlock()
	b := w.newSandbox(oneHostPolicy)
	if code, _ := b.get("https://api.good.test/"); code != 200 {
		t.Fatalf("with the first answer: got %d, want 200", code)
	}
	if w.lookups.Load() != 1 || w.dialled[0] != up.addr.String()+":443" {
		t.Errorf("%d lookups, dialled %v, want one of each", w.lookups.Load(), w.dialled)
	}
	b.current.Load().transport.CloseIdleConnections()
	if code, _ := b.get("https://api.good.test/"); code != 502 {
		t.Errorf("with the second answer, loopback: got %d, want 502", code)
	}
	if w.dials.Load() != 1 {
		t.Errorf("the gateway dialled %v, want the first answer only", w.dialled)
	}
}

func TestRedirectIsDecidedAgain(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
		to := map[string]string{"/denied": "https://evil.test/", "/metadata": "http://169.254.169.254/latest", "/other": "https://other.good.test/landed"}
		http.Redirect(rw, r, to[r.URL.Path], http.StatusFound)
	}, "api.good.test")
	evil := w.serve("443", nil, "evil.test")
	other := w.serve("443", nil, "other.good.test")
	b := w.newSandbox(oneHostPolicy, func(c *Config) { c.Secrets = []egress.Secret{token("api.good.test")} })
	follow := b.client(true)
	follow.CheckRedirect = nil
	for _, path := range []string{"/denied", "/metadata"} {
		if code, body := b.with(follow, "GET", "https://api.good.test"+path, "", nil); code != 0 {
			t.Errorf("redirect %s: got %d %s, want no response", path, code, body)
		}
	}
	if code, _ := b.with(follow, "GET", "https://api.good.test/other", "", nil); code != 200 || other.log()[0].Auth != "" {
		t.Errorf("redirect to an allowed host: got %d, %+v, want 200 without the secret", code, other.log())
	}
	if len(evil.log()) != 0 {
		t.Error("a redirect reached a denied host")
	}
}

func TestUpstreamCertificateIsVerified(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "impostor.test")
	w.mu.Lock()
	w.zone["api.good.test"] = []netip.Addr{up.addr}
	w.mu.Unlock()
	b := w.newSandbox(oneHostPolicy, func(c *Config) { c.Secrets = []egress.Secret{token("api.good.test")} })
	if code, body := b.get("https://api.good.test/"); code != 502 || !strings.Contains(body, policy.RuleCertificate) {
		t.Errorf("a server with another certificate: got %d %s, want 502", code, body)
	}
	if len(up.log()) != 0 {
		t.Errorf("the server with another certificate got %+v", up.log())
	}
}

// webSocketServer starts a server that accepts or ignores upgrades. It echoes the data of accepted
// ones.
func (w *environment) webSocketServer(upgrade bool, name string) *[]string {
	ln, _ := w.listen("80", name)
	var got []string
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					w.mu.Lock()
					got = append(got, r.Method+" "+r.URL.Path)
					w.mu.Unlock()
					if !upgrade {
						io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
						continue
					}
					io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
					io.Copy(c, in)
					return
				}
			}()
		}
	}()
	return &got
}

const upgrade = " HTTP/1.1\r\nHost: ws.good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

const wsPolicy = `
level: minimal
network:
  unlisted: deny
  hosts: [{host: ws.good.test, ports: [80], rules: [{id: ws, methods: [GET], paths: ["/ws"], do: allow}]}]
`

func TestRefusedUpgradeEndsTunnel(t *testing.T) {
	w := newEnvironment(t)
	got := w.webSocketServer(false, "ws.good.test")
	b := w.newSandbox(wsPolicy)
	c, err := b.dial("ws.good.test", 80)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The server ignores the upgrade, so the policy decides about the data after it as a request.
	text := b.raw(c, "GET /ws"+upgrade+"DELETE /secret HTTP/1.1\r\nHost: ws.good.test\r\n\r\n")
	if !strings.HasPrefix(text, "HTTP/1.1 200") || !strings.Contains(text, "HTTP/1.1 403") {
		t.Errorf("the connection returned %s, want 200 and then 403", text)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(*got) != 1 {
		t.Errorf("upstream got %v, want one request", *got)
	}
}

func TestWebSocketIsForwarded(t *testing.T) {
	w := newEnvironment(t)
	w.webSocketServer(true, "ws.good.test")
	b := w.newSandbox(wsPolicy)
	c := b.webSocket()
	defer c.Close()
	echo(t, c, "ping")
	c.Close()
	hosttest.Eventually(t, "the entry has the bytes", func() bool {
		l := b.records.all(egress.KindWebSocket)
		return len(l) == 1 && l[0].Sent == 4 && l[0].Received == 4 && l[0].Status == 101 && l[0].Effect == egress.Allow
	})
}

func (b *testSandbox) webSocket() net.Conn {
	b.t.Helper()
	c, err := b.dial("ws.good.test", 80)
	if err != nil {
		b.t.Fatal(err)
	}
	io.WriteString(c, "GET /ws"+upgrade)
	in := make([]byte, 4096)
	n, err := c.Read(in)
	if err != nil || !strings.HasPrefix(string(in[:n]), "HTTP/1.1 101") {
		b.t.Fatalf("the upgrade: got %q %v, want 101", in[:n], err)
	}
	return c
}

func echo(t *testing.T, c net.Conn, text string) {
	t.Helper()
	io.WriteString(c, text)
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("the echo is %q %v, want %q", got, err, text)
	}
}

func TestWebSocketSettingIsEnforced(t *testing.T) {
	w := newEnvironment(t)
	got := w.webSocketServer(true, "ws.good.test")
	b := w.newSandbox(strings.Replace(wsPolicy, "unlisted: deny", "unlisted: deny\n  websocket: deny", 1))
	c, err := b.dial("ws.good.test", 80)
	if err != nil {
		t.Fatal(err)
	}
	if text := b.raw(c, "GET /ws"+upgrade); !strings.HasPrefix(text, "HTTP/1.1 403") || !strings.Contains(text, policy.RuleWebSocket) {
		t.Errorf("an upgrade with websocket: deny: got %q, want 403", text)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(*got) != 0 {
		t.Errorf("upstream got %v, want nothing", *got)
	}
}

func TestProxyPortRequests(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", nil, "api.good.test")
	plain := w.serve("80", nil, "plain.good.test")
	b := w.newSandbox(oneHostPolicy)
	proxied := b.proxied()
	if code, body := b.with(proxied, "GET", "https://api.good.test/a", "", nil); code != 200 || body != "hello from api.good.test" {
		t.Errorf("a request in a CONNECT tunnel: got %d %s, want 200", code, body)
	}
	if code, body := b.with(proxied, "POST", "https://api.good.test/a", "x", nil); code != 403 {
		t.Errorf("a denied request in a CONNECT tunnel: got %d %s, want 403", code, body)
	}
	if code, body := b.with(proxied, "GET", "http://plain.good.test/b", "", nil); code != 200 || plain.log()[0].Host != "plain.good.test" {
		t.Errorf("absolute form: got %d %s, want 200", code, body)
	}
	if code, body := b.with(proxied, "GET", "http://evil.test/b", "", nil); code != 403 || !strings.Contains(body, "--allow evil.test:80") {
		t.Errorf("denied absolute form: got %d %s, want 403", code, body)
	}
	c, err := b.to(netip.AddrPortFrom(egress.Gateway, egress.ProxyPort))
	if err != nil {
		t.Fatal(err)
	}
	if text := b.raw(c, "GET / HTTP/1.1\r\nHost: plain.good.test\r\n\r\n"); !strings.HasPrefix(text, "HTTP/1.1 400") {
		t.Errorf("a request without a full URL: got %q, want 400", text)
	}
	for _, target := range []string{"127.1:443", "0x7f000001:443", "2130706433:443", "api.good.test\x00.evil.test:443", "api.good.test%00:443", "api.good.test", "a@api.good.test:443", "[::1]:443"} {
		if text := b.connect(target); strings.HasPrefix(text, "HTTP/1.1 200") {
			t.Errorf("CONNECT %q succeeded", target)
		}
	}
	if _, err := b.to(netip.AddrPortFrom(egress.Gateway, 22)); err == nil {
		t.Error("another port of the gateway accepts connections")
	}
	if _, err := b.to(netip.MustParseAddrPort("10.199.0.2:80")); err == nil {
		t.Error("the sandbox reached itself through the gateway")
	}
}

func TestLastBytesOfWebSocketArrive(t *testing.T) {
	w := newEnvironment(t)
	ln, _ := w.listen("80", "ws.good.test")
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
			c.Write(make([]byte, 1<<20))
		}
	}()
	b := w.newSandbox(wsPolicy)
	c, err := b.dial("ws.good.test", 80)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET /ws"+upgrade)
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("the upgrade: got %v %v, want 101", resp, err)
	}
	if n, err := io.Copy(io.Discard, in); n != 1<<20 || err != nil {
		t.Errorf("%d bytes of the WebSocket arrived, %v, want 1 MiB", n, err)
	}
}
