package causeway_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// canary is the value of a secret, which must not be found inside any sandbox.
const canary = "sk-canary-4f9a8b7c6d5e4f3a2b1c"

// storeSecret stores a secret until the test ends.
func (a *environment) storeSecret(t testing.TB, name, value string) {
	t.Helper()
	if a.kernels != nil {
		a.kernels.sealed[name] = value
		return
	}
	if _, err := a.client.NewSecret(t.Context(), api.CreateSecret{Name: name, Value: value}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.client.RemoveSecret(noContext(), name); err != nil {
			t.Error(err)
		}
	})
}

// P19: a connection has one identity. Unless name, server name, Host, port and certificate agree,
// the gateway sends nothing.
func TestN6ServerNameIsNotTheTarget(t *testing.T) {
	need(t, openssl)
	t.Parallel()
	n6ServerNameIsNotTheTarget(t, sharedEnvironment(t))
}

func n6ServerNameIsNotTheTarget(t *testing.T, a *environment) {
	opened, passed := a.web(t, 443, nil, "api.n6.test"), a.web(t, 443, nil, "pass.n6.test")
	b := a.newSandbox(t, `
level: minimal
network:
  unlisted: deny
  hosts:
    - {host: api.n6.test, rules: [{methods: [GET], do: allow}]}
    - {host: pass.n6.test, rules: [{do: allow}]}
    - {host: other.n6.test, rules: [{do: allow}]}
`)
	before := len(a.dials(""))
	for _, target := range []string{"api.n6.test", "pass.n6.test"} {
		for _, line := range []string{
			"curl -sS -k -m 300 --connect-to other.n6.test:443:" + target + ":443 https://other.n6.test/",
			"echo | timeout 300 openssl s_client -verify_return_error -connect " + target + ":443 -servername other.n6.test -CAfile /tmp/world.pem",
			"echo | timeout 300 openssl s_client -verify_return_error -connect " + target + ":443 -noservername -CAfile /tmp/world.pem",
		} {
			if out, code := b.sh(line); code == 0 {
				t.Errorf("%s succeeded: %s", line, out)
			}
		}
		b.requireLines(b.python("for n in ('other.n6.test', '"+target+".', '"+target+"x', None): print(handshake('"+target+"', sni=n, verify=False) == 'done')"), "False", "False", "False", "False")
	}
	if n := len(a.dials("")) - before; n != 0 {
		t.Errorf("got %d dials, want 0", n)
	}
	b.awaitFlow("the server name", func(r api.FlowRecord) bool { return r.Rule == "identity.sni" && r.Host == "pass.n6.test" })
	if out, code := b.sh("echo | timeout 300 openssl s_client -verify_return_error -connect pass.n6.test:443 -servername pass.n6.test -CAfile /tmp/world.pem"); code != 0 {
		t.Errorf("the correct server name: %s", out)
	}
	if out, _ := b.sh("curl -sS -m 300 https://api.n6.test/; curl -sS -m 300 --cacert /tmp/world.pem https://pass.n6.test/"); out != "hello from api.n6.testhello from pass.n6.test" {
		t.Errorf("honest requests: %s", out)
	}
	if len(opened.seen()) != 1 || len(passed.seen()) != 1 {
		t.Errorf("got %d and %d requests, want 1 each", len(opened.seen()), len(passed.seen()))
	}
}

const frontedPolicy = `
network:
  unlisted: deny
  hosts:
    - {host: api.n7.test, rules: [{methods: [GET], do: allow}]}
    - {host: other.n7.test, rules: [{methods: [GET], do: allow}]}
secrets: {bind: [{name: N7, host: api.n7.test, header: Authorization, format: "Bearer {}"}]}
`

// P19: the Host header must name the host of the TLS connection, even if one server has both.
func TestN7DomainFronting(t *testing.T) {
	need(t)
	t.Parallel()
	n7DomainFronting(t, sharedEnvironment(t))
}

func n7DomainFronting(t *testing.T, a *environment) {
	up := a.web(t, 443, nil, "api.n7.test", "other.n7.test") // one server, one certificate, as at a CDN
	a.storeSecret(t, "N7", canary)
	b := a.newSandbox(t, frontedPolicy)
	for _, c := range [][2]string{{"api.n7.test", "other.n7.test"}, {"other.n7.test", "api.n7.test"}, {"api.n7.test", "evil.n7.test"}, {"other.n7.test", "api.n7.test."}, {"other.n7.test", "API.n7.test"}} {
		for _, version := range []string{"--http1.1", "--http2"} {
			line := "curl -sS -m 300 " + version + " -H 'Host: " + c[1] + "' https://" + c[0] + "/ -w ' %{http_code}'"
			if out, _ := b.sh(line); !contains(out, "421", "identity.host") {
				t.Errorf("%s: got %s, want 421", line, out)
			}
		}
	}
	if s := up.seen(); len(s) > 0 {
		t.Fatalf("the fake internet got %+v", s)
	}
	if out, _ := b.sh("curl -sS -m 300 https://api.n7.test/ -w ' %{http_code}'"); out != "hello from api.n7.test 200" || up.seen()[0].auth() != "Bearer "+canary {
		t.Errorf("the honest request: got %s, the host got %+v", out, up.seen())
	}
	// Through the proxy the Host header differs from the name of the CONNECT.
	if out, _ := b.sh("curl -sS -m 300 -x " + proxyURL() + " -H 'Host: other.n7.test' https://api.n7.test/ -w ' %{http_code}'"); !contains(out, "421") {
		t.Errorf("inside CONNECT: %s", out)
	}
}

// P19: a secret is sent only to its host, and only if that has a valid certificate.
func TestN8CredentialToWrongPeer(t *testing.T) {
	need(t)
	t.Parallel()
	n8CredentialToWrongPeer(t, sharedEnvironment(t))
}

func n8CredentialToWrongPeer(t *testing.T, a *environment) {
	boundHost, other := a.web(t, 443, nil, "api.n8.test"), a.web(t, 443, nil, "other.n8.test")
	plain := a.web(t, 80, nil, "api.n8.test")
	// A server without a valid certificate for its name gets no request at all.
	impostor := a.web(t, 443, nil, "impostor.n8.test")
	a.setAddresses("forged.n8.test", impostor.address)
	a.storeSecret(t, "N8", canary)
	b := a.newSandbox(t, `
network:
  unlisted: deny
  hosts:
    - {host: api.n8.test, ports: [443, 80], rules: [{methods: [GET], do: allow}]}
    - {host: other.n8.test, rules: [{methods: [GET], do: allow}]}
    - {host: forged.n8.test, rules: [{methods: [GET], do: allow}]}
secrets:
  bind:
    - {name: N8, host: api.n8.test, header: Authorization, format: "Bearer {}"}
    - {name: N8, host: forged.n8.test, header: Authorization, format: "Bearer {}"}
`)
	b.requireLines(b.python(`
print(status(get('other.n8.test', name='api.n8.test')))
print(status(get('other.n8.test', extra='Authorization: Bearer sealed-by-crannog-N8\r\n')))
print(status(get('other.n8.test', extra='X-Forwarded-Host: api.n8.test\r\nForwarded: host=api.n8.test\r\n')))
print(status(get('forged.n8.test')))
s = socket.create_connection(('api.n8.test', 80), 5)
print(status(raw(s, 'GET / HTTP/1.1\r\nHost: api.n8.test\r\nConnection: close\r\n\r\n')))
print(status(get('api.n8.test')))
`), "421", "200", "200", "502", "200", "200")
	for _, s := range [][]request{other.seen(), impostor.seen(), plain.seen()} {
		for _, r := range s {
			if contains(r.auth(), canary) {
				t.Errorf("the secret was sent to %s: %+v", r.Host, r)
			}
		}
	}
	if len(impostor.seen()) > 0 || len(boundHost.seen()) != 1 || boundHost.seen()[0].auth() != "Bearer "+canary {
		t.Errorf("the bound host got %+v", boundHost.seen())
	}
	if r := b.awaitFlow("the certificate", func(r api.FlowRecord) bool { return r.Host == "forged.n8.test" && r.Kind == "http" && r.Status > 0 }); r.Status != 502 {
		t.Errorf("the flow entry of a forged certificate: got %+v", r)
	}
}

// P19: a policy for one port of a host does not open its other ports.
func TestN9PortPivot(t *testing.T) {
	need(t)
	t.Parallel()
	n9PortPivot(t, sharedEnvironment(t))
}

func n9PortPivot(t *testing.T, a *environment) {
	up, pivot := a.web(t, 443, nil, "api.n9.test"), a.web(t, 8443, nil, "api.n9.test")
	b := a.newSandbox(t, "network: {unlisted: deny, hosts: [{host: api.n9.test, rules: [{methods: [GET], do: allow}]}]}\n")
	b.requireLines(b.python(`
a = get('api.n9.test', name='api.n9.test:8443')
print(status(a), rule(a))
s, a = connect('api.n9.test:8443')
print(status(a), rule(a))
print(reach('api.n9.test', 8443), reach('api.n9.test', 80), reach('api.n9.test', 22))
s, a = connect('api.n9.test:443')
print(status(a))
a = raw(tls('api.n9.test', via=s), 'GET / HTTP/1.1\r\nHost: api.n9.test:8443\r\nConnection: close\r\n\r\n')
print(status(a), rule(a))
print(status(get('api.n9.test', name='api.n9.test:443')))
`), "421 identity.port", "403 *", "ECONNREFUSED ECONNREFUSED ECONNREFUSED", "200", "421 identity.port", "200")
	if len(up.seen()) != 1 || len(pivot.seen()) > 0 || len(a.dials(pivot.address+":8443")) > 0 {
		t.Errorf("got %d requests at the port of the policy and %d at another, want 1 and 0", len(up.seen()), len(pivot.seen()))
	}
}

func TestN12Redirects(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	api := a.web(t, 443, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	}, "api.n12.test")
	plain := a.web(t, 80, nil, "api.n12.test")
	evil := a.web(t, 443, nil, "evil.n12.test")
	good := a.web(t, 443, nil, "good.n12.test")
	a.storeSecret(t, "N12", canary)
	b := a.newSandbox(t, `
network:
  unlisted: deny
  hosts:
    - {host: api.n12.test, rules: [{methods: [GET], do: allow}]}
    - {host: good.n12.test, rules: [{methods: [GET], paths: [/open/**], do: allow}]}
secrets: {bind: [{name: N12, host: api.n12.test, header: Authorization, format: "Bearer {}"}]}
`)
	for to, wants := range map[string]string{
		"https://evil.n12.test/":           "Could not resolve host",
		"http://169.254.169.254/latest/":   "Failed to connect",
		"http://127.0.0.1:6379/":           "Failed to connect",
		"http://api.n12.test/":             "Failed to connect",
		"https://good.n12.test/closed":     "403",
		"https://" + evil.address + "/":    "Failed to connect",
		"https://good.n12.test/open/thing": "hello from good.n12.test 200", // positive control
	} {
		if out, _ := b.sh("curl -sSL --location-trusted -m 300 'https://api.n12.test/?to=" + to + "' -w ' %{http_code}'"); !contains(out, wants) {
			t.Errorf("a redirect to %s: got %s, want %s", to, out, wants)
		}
	}
	if len(evil.seen()) > 0 || len(plain.seen()) > 0 || len(a.dials("169.254")) > 0 {
		t.Error("the target of a redirect escaped the policy")
	}
	if n := len(api.seen()); n != 7 || api.seen()[0].auth() != "Bearer "+canary {
		t.Errorf("got %d requests before redirects, want 7", n)
	}
	for _, r := range good.seen() {
		if contains(r.auth(), canary) {
			t.Error("the redirected request carries the secret")
		}
	}
}

func TestN13PathTricks(t *testing.T) {
	need(t)
	t.Parallel()
	n13PathTricks(t, sharedEnvironment(t))
}

func n13PathTricks(t *testing.T, a *environment) {
	up := a.web(t, 443, nil, "api.n13.test")
	b := a.newSandbox(t, "network: {unlisted: deny, hosts: [{host: api.n13.test, rules: [{methods: [GET], paths: ['/open/**'], do: allow}]}]}\n")
	got := b.python(`
for p in ('/open/../closed', '/open/%2e%2e/closed', '/open/%252e%252e/', '/open%2fx', '/open%5cx', '/open\\x', '//open/x', '/open//x', '/open;x', '/open/%00', '/open/%0d%0ax', '/./open/x', '/open/./x', '*', '/open/%2E%2E%2Fclosed', '/open/..;/closed', '/open/\x7f'):
    print(status(get('api.n13.test', p)), p.encode())
`)
	for _, line := range got {
		if line[:3] != "400" {
			t.Errorf("an ambiguous path: got %s, want 400", line)
		}
	}
	if len(up.seen()) > 0 || len(got) != 17 {
		t.Errorf("got %d answers, want 17, and the fake internet got %+v", len(got), up.seen())
	}
	b.requireLines(b.python(`
print(status(get('api.n13.test', '/open/a%20b/c.txt?q=../x%2f')), status(get('api.n13.test', '/closed')))
`), "200 403")
	for _, path := range []string{"/open/../closed", "/open/%2e%2e/closed"} {
		if out, _ := b.sh("curl -sS -m 300 --http2 --path-as-is https://api.n13.test" + path + " -w ' %{http_code}'"); !contains(out, " 400") {
			t.Errorf("over HTTP/2 %s: %s", path, out)
		}
	}
	if len(up.seen()) != 1 {
		t.Errorf("the fake internet got %+v", up.seen())
	}
}

func TestN17OtherProtocols(t *testing.T) {
	need(t)
	t.Parallel()
	n17OtherProtocols(t, sharedEnvironment(t))
}

func n17OtherProtocols(t *testing.T, a *environment) {
	up := a.web(t, 443, nil, "api.n17.test")
	b := a.newSandbox(t, "level: minimal\nnetwork: {unlisted: deny, hosts: [{host: api.n17.test, rules: [{do: allow}]}]}\n")
	got := b.python(`
for text in (b'SSH-2.0-OpenSSH_9\r\n', b'\0\1\2', b'\x16\3\1\0\5hello', b'\x80\x2e\1\0\2', b'get / http/1.0\r\n\r\n', b'EHLO x\r\n', b'*1\r\n$4\r\nPING\r\n', b'\x16\3\1\xff\xff' + b'x' * 70000):
    print(raw(socket.create_connection(('api.n17.test', 443), 5), text)[:40].encode())
s, a = connect('api.n17.test:443')
print(status(a), raw(s, b'SSH-2.0-OpenSSH_9\r\n').encode())
`)
	for _, line := range got {
		if contains(line, "HTTP/1.1 2") || contains(line, "SSH-") {
			t.Errorf("another protocol was answered: %s", line)
		}
	}
	if len(up.seen()) > 0 || len(a.dials(up.address)) > 0 {
		t.Error("the fake internet was reached")
	}
	// An entry may be written after the answer.
	hosttest.Eventually(t, fmt.Sprintf("%d attempts are recorded", len(got)), func() bool { return len(b.records("tcp", "http", "connect")) >= len(got) })
	if got := b.line("print(status(get('api.n17.test', ca='/tmp/world.pem')))"); got != "200" {
		t.Errorf("TLS: %s", got)
	}
}
