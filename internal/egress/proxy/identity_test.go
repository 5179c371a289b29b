package proxy

import (
	"crypto/tls"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

const oneHostPolicy = `
level: minimal
network:
  unlisted: deny
  hosts:
    - {host: api.good.test, rules: [{id: read, methods: [GET], do: allow}]}
    - {host: plain.good.test, ports: [80], rules: [{do: allow}]}
    - {host: pass.good.test, rules: [{do: allow}]}
    - {host: other.good.test, rules: [{id: all, paths: ["/**"], do: allow}]}
`

func TestAllowedRequestPasses(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	b := w.newSandbox(oneHostPolicy)
	for _, h2 := range []bool{false, true} {
		if code, body := b.with(b.client(h2), "GET", "https://api.good.test/x?q=1", "", nil); code != 200 || body != "hello from api.good.test" {
			t.Fatalf("HTTP/2 %v: got %d %s, want 200", h2, code, body)
		}
	}
	hosttest.Eventually(t, "there are two entries", func() bool { return len(b.records.all(egress.KindHTTP)) == 2 })
	for _, r := range b.records.all(egress.KindHTTP) {
		if r.Effect != egress.Allow || r.Rule != "host:api.good.test/read" || r.Status != 200 || r.Path != "/x" || r.Received != 24 || r.Took <= 0 ||
			r.Address != up.addr.String()+":443" && !strings.HasPrefix(r.Address, "127.0.0.1:") {
			t.Errorf("the entry is %+v, want an allowed request for /x with status 200", r)
		}
	}
	if len(up.log()) != 2 {
		t.Errorf("upstream got %d requests, want 2", len(up.log()))
	}
}

func TestUnlistedHostIsDenied(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "evil.test")
	good := w.serve("443", nil, "api.good.test")
	b := w.newSandbox(oneHostPolicy)
	if _, err := b.resolve("evil.test"); err == nil || !strings.Contains(err.Error(), "NXDomain") && !strings.Contains(err.Error(), "NameError") {
		t.Errorf("lookup of an unlisted host: got %v, want a name error", err)
	}
	if c, err := b.to(netip.AddrPortFrom(up.addr, 443)); err == nil {
		t.Errorf("connection to the host's address: got %v, want an error", c)
	}
	if got := b.connect("evil.test:443"); !strings.HasPrefix(got, "HTTP/1.1 403") || !strings.Contains(got, "crannog: blocked CONNECT evil.test:443 rule=network.unlisted allow with --allow evil.test") {
		t.Errorf("CONNECT to an unlisted host: got %s, want 403", got)
	}
	if got := b.connect(up.addr.String() + ":443"); !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Errorf("CONNECT to the host's address: got %s, want 403", got)
	}
	if len(up.log()) != 0 || w.dials.Load() != 0 || w.lookups.Load() != 0 {
		t.Error("a denied connection was looked up, dialled or sent upstream")
	}
	// A synthetic address that belongs to no name is refused.
	if _, err := b.to(netip.MustParseAddrPort("198.18.200.1:443")); err == nil {
		t.Error("a connection to a synthetic address without a name was accepted")
	}
	if code, _ := b.get("https://api.good.test/"); code != 200 || len(good.log()) != 1 {
		t.Error("control: a request to a listed host failed")
	}
}

func (b *testSandbox) connect(target string) string {
	b.t.Helper()
	c, err := b.to(netip.AddrPortFrom(egress.Gateway, egress.ProxyPort))
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	return b.raw(c, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
}

func TestServerNameMustBeConnectionHost(t *testing.T) {
	w := newEnvironment(t)
	for _, hostname := range []string{"api.good.test", "pass.good.test"} {
		t.Run(hostname, func(t *testing.T) {
			up := w.serve("443", nil, hostname)
			b := w.newSandbox(oneHostPolicy)
			before := w.dials.Load()
			for _, serverName := range []string{"other.good.test", ""} {
				if _, err := b.tls(hostname, serverName, b.trust); err == nil {
					t.Errorf("a handshake with the server name %q succeeded on a connection to %s", serverName, hostname)
				}
			}
			hosttest.Eventually(t, "both handshakes have an entry", func() bool { return len(b.records.all(egress.KindTCP)) == 2 })
			for _, r := range b.records.all(egress.KindTCP) {
				if r.Effect != egress.Deny || r.Rule != policy.RuleSNI {
					t.Errorf("the entry is %+v, want a denial by %s", r, policy.RuleSNI)
				}
			}
			if w.dials.Load() != before {
				t.Error("a connection with a wrong server name was dialled")
			}
			roots := b.trust
			if hostname == "pass.good.test" {
				roots = w.roots
			}
			c, err := b.tls(hostname, hostname, roots)
			if err != nil {
				t.Fatalf("control: a handshake with the right name: %v, %+v", err, b.records.all())
			}
			if got := b.raw(c, "GET / HTTP/1.1\r\nHost: "+hostname+"\r\nConnection: close\r\n\r\n"); !strings.Contains(got, "hello from") {
				t.Errorf("control: the response is %q", got)
			}
			if len(up.log()) != 1 {
				t.Error("control: the request did not reach upstream")
			}
		})
	}
}

func TestHostHeaderMustBeConnectionHost(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test", "other.good.test")
	b := w.newSandbox(oneHostPolicy, func(c *Config) { c.Secrets = []egress.Secret{token("api.good.test")} })
	for _, c := range [][2]string{{"api.good.test", "other.good.test"}, {"other.good.test", "api.good.test"}, {"api.good.test", "evil.test"}, {"other.good.test", "api.good.test."}} {
		for _, h2 := range []bool{false, true} {
			code, body := b.with(b.client(h2), "GET", "https://"+c[0]+"/", "", http.Header{"Host": {c[1]}})
			if code != http.StatusMisdirectedRequest || !strings.Contains(body, "identity.host") {
				t.Errorf("HTTP/2 %v, a request to %s with the host %s: got %d %s, want 421", h2, c[0], c[1], code, body)
			}
		}
	}
	if len(up.log()) != 0 {
		t.Fatalf("upstream got %+v, want nothing", up.log())
	}
	if code, _ := b.get("https://api.good.test/"); code != 200 || up.log()[0].Auth != "Bearer "+secretValue {
		t.Errorf("control: a request with its own host: got %d %+v, want 200 with the secret", code, up.log())
	}
}

func TestSecretIsNotSentToAnotherHost(t *testing.T) {
	w := newEnvironment(t)
	other := w.serve("443", nil, "other.good.test")
	api := w.serve("443", nil, "api.good.test")
	b := w.newSandbox(oneHostPolicy, func(c *Config) { c.Secrets = []egress.Secret{token("api.good.test")} })
	if code, _ := b.do("GET", "https://other.good.test/", "", http.Header{"Host": {"api.good.test"}}); code != 421 {
		t.Errorf("a request to another host with the Host header of the bound one: got %d, want 421", code)
	}
	if code, _ := b.get("https://other.good.test/"); code != 200 {
		t.Errorf("a request to another host: got %d, want 200", code)
	}
	for _, s := range other.log() {
		if s.Auth != "" {
			t.Errorf("the other host got the authorization %q", s.Auth)
		}
	}
	if code, _ := b.get("https://api.good.test/"); code != 200 || api.log()[0].Auth != "Bearer "+secretValue {
		t.Error("control: the bound host did not get the secret")
	}
}

func TestOtherPortIsDenied(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	b := w.newSandbox(oneHostPolicy)
	if code, body := b.do("GET", "https://api.good.test/", "", http.Header{"Host": {"api.good.test:8443"}}); code != 421 || !strings.Contains(body, policy.RulePort) {
		t.Errorf("a request with another port in its Host header: got %d %s, want 421", code, body)
	}
	if got := b.connect("api.good.test:8443"); !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Errorf("CONNECT to another port: got %q, want 403", got)
	}
	if _, err := b.dial("api.good.test", 8443); err == nil {
		t.Error("a connection to another port was accepted")
	}
	if len(up.log()) != 0 {
		t.Error("a request for another port reached upstream")
	}
	if code, _ := b.do("GET", "https://api.good.test/", "", http.Header{"Host": {"api.good.test:443"}}); code != 200 {
		t.Errorf("control: a request with its own port: got %d, want 200", code)
	}
}

func TestAmbiguousPathIsRejected(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	b := w.newSandbox(oneHostPolicy)
	for _, path := range []string{"/a/../b", "/a/%2e%2e/b", "/%252e%252e/", "/a%2fb", "/a%5cb", "/a\\b", "//a", "/a//b", "/a;b", "/a%00", "/a%0d%0ab", "/./a", "*"} {
		c, err := b.tls("api.good.test", "api.good.test", b.trust)
		if err != nil {
			t.Fatal(err)
		}
		got := b.raw(c, "GET "+path+" HTTP/1.1\r\nHost: api.good.test\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 400") {
			t.Errorf("path %s: got %.80s, want 400", path, got)
		}
	}
	if len(up.log()) != 0 {
		t.Errorf("upstream got %+v, want nothing", up.log())
	}
	if code, _ := b.get("https://api.good.test/a/b%20c/?q=../x"); code != 200 {
		t.Errorf("control: a plain path: got %d, want 200", code)
	}
}

func TestOtherProtocolsAreRejected(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", nil, "api.good.test")
	b := w.newSandbox(oneHostPolicy)
	for _, text := range []string{"SSH-2.0-OpenSSH_9\r\n", "\x00\x01\x02", "\x16\x03\x01\x00\x05hello", "\x80\x2e\x01\x00\x02", "get / http/1.0\r\n\r\n"} {
		c, err := b.dial("api.good.test", 443)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.raw(c, text); strings.Contains(got, "HTTP/1.1 2") {
			t.Errorf("the data %q got the response %q, want no success", text, got)
		}
		c.Close()
	}
	if w.dials.Load() != 0 {
		t.Error("a connection with another protocol was dialled")
	}
	hosttest.Eventually(t, "each connection has an entry", func() bool { return len(b.records.all(egress.KindTCP, egress.KindHTTP)) == 5 })
	for _, r := range b.records.all(egress.KindTCP, egress.KindHTTP) {
		if r.Effect != egress.Deny {
			t.Errorf("the entry is %+v, want a denial", r)
		}
	}
}

func TestPlainHTTPNeedsListedPort(t *testing.T) {
	w := newEnvironment(t)
	plain := w.serve("80", nil, "plain.good.test")
	w.serve("80", nil, "api.good.test")
	b := w.newSandbox(oneHostPolicy)
	if code, body := b.get("http://plain.good.test/x"); code != 200 || body != "hello from plain.good.test" {
		t.Errorf("plain HTTP to a listed port: got %d %s, want 200", code, body)
	}
	if _, err := b.dial("api.good.test", 80); err == nil {
		t.Error("a connection to port 80 was accepted although only 443 is listed")
	}
	// A request without TLS on port 443 gets a response that explains the refusal.
	c, err := b.dial("api.good.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.raw(c, "GET / HTTP/1.1\r\nHost: api.good.test:443\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400") || !strings.Contains(got, policy.RulePlain) {
		t.Errorf("plain HTTP on port 443: got %q, want 400 by %s", got, policy.RulePlain)
	}
	if n := len(plain.log()); n != 1 {
		t.Errorf("upstream got %d requests, want 1", n)
	}
}

func TestSmuggledRequestsAreRejected(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test", "other.good.test")
	b := w.newSandbox(oneHostPolicy)
	cases := map[string]string{
		"both lengths":      "POST / HTTP/1.1\r\nHost: other.good.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"two hosts":         "GET / HTTP/1.1\r\nHost: other.good.test\r\nHost: evil.test\r\n\r\n",
		"absolute form":     "GET https://evil.test/ HTTP/1.1\r\nHost: other.good.test\r\n\r\n",
		"other scheme":      "GET http://other.good.test/ HTTP/1.1\r\nHost: other.good.test\r\n\r\n",
		"NUL":               "GET / HTTP/1.1\r\nHost: other.good.test\r\nX: a\x00b\r\n\r\n",
		"preface":           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"inner CONNECT":     "CONNECT evil.test:443 HTTP/1.1\r\nHost: other.good.test\r\n\r\n",
		"TRACE":             "TRACE / HTTP/1.1\r\nHost: other.good.test\r\n\r\n",
		"options star":      "OPTIONS * HTTP/1.1\r\nHost: other.good.test\r\n\r\n",
		"lower-case method": "delete / HTTP/1.1\r\nHost: other.good.test\r\n\r\n",
		"folded header":     "GET / HTTP/1.1\r\nHost: other.good.test\r\nX: a\r\n b\r\n\r\n",
		"space before :":    "GET / HTTP/1.1\r\nHost: other.good.test\r\nContent-Length : 5\r\n\r\n",
		"two lengths":       "POST / HTTP/1.1\r\nHost: other.good.test\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
		"no host":           "GET / HTTP/1.1\r\n\r\n",
	}
	for name, text := range cases {
		c, err := b.tls("other.good.test", "other.good.test", b.trust)
		if err != nil {
			t.Fatal(err)
		}
		before := len(up.log())
		got := b.raw(c, text)
		if name == "both lengths" {
			// The server uses the chunks; the data after them is a request of its own.
			for _, s := range up.log()[before:] {
				if s.Path == "/smuggled" {
					t.Errorf("%s: upstream got the smuggled request %+v", name, s)
				}
			}
			continue
		}
		if name == "folded header" && strings.HasPrefix(got, "HTTP/1.1 200") {
			continue // net/http unfolds the header and forwards it as one line
		}
		if len(up.log()) != before {
			t.Errorf("%s: upstream got %+v, want nothing", name, up.log()[before:])
		}
		if !strings.HasPrefix(got, "HTTP/1.1 4") {
			t.Errorf("%s: got %.100q, want a 4xx response", name, got)
		}
	}
	if code, _ := b.get("https://other.good.test/fine"); code != 200 {
		t.Error("control: a valid request failed")
	}
	// Upstream got exactly the requests that have an entry with the effect allow.
	allowed := func() (paths []string) {
		for _, r := range b.records.all(egress.KindHTTP) {
			if r.Effect == egress.Allow {
				paths = append(paths, r.Method+" "+r.Path)
			}
		}
		return paths
	}
	hosttest.Eventually(t, "there are as many entries as requests", func() bool { return len(allowed()) == len(up.log()) })
	for i, s := range up.log() {
		if allowed()[i] != s.Method+" "+s.Path {
			t.Errorf("the entry %d is %s, but upstream got %s %s", i, allowed()[i], s.Method, s.Path)
		}
	}
	hosttest.Eventually(t, "each attempt has an entry", func() bool { return len(b.records.all(egress.KindHTTP, egress.KindTCP)) >= len(cases)+1 })
}

func TestConnectionWithECHIsDecrypted(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", nil, "pass.good.test")
	b := w.newSandbox(oneHostPolicy)
	c, err := b.dial("pass.good.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	list := echList(t, "pass.good.test")
	inner := tls.Client(c, &tls.Config{RootCAs: b.trust, ServerName: "evil.test", EncryptedClientHelloConfigList: list, MinVersion: tls.VersionTLS13})
	if err := inner.Handshake(); err == nil {
		t.Fatal("a handshake with a hidden name succeeded")
	}
	if w.dials.Load() != 0 {
		t.Error("a connection with a hidden name was dialled")
	}
}
