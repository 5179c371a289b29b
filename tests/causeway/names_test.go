package causeway_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/api"
)

// P17: the only way out is the gateway, and it leads only to listed hosts.
func TestN1HostNotListed(t *testing.T) {
	need(t)
	t.Parallel()
	n1HostNotListed(t, sharedEnvironment(t))
}

func n1HostNotListed(t *testing.T, a *environment) {
	good := a.web(t, 443, nil, "api.n1.test")
	evil := a.web(t, 443, nil, "evil.n1.test")
	b := a.newSandbox(t, "network: {unlisted: deny, hosts: [{host: api.n1.test, rules: [{methods: [GET], do: allow}]}]}\n")
	for line, want := range map[string]string{
		"curl -sS -m 300 https://evil.n1.test/":                                                                     "Could not resolve host",
		"curl -sS -m 300 https://" + evil.address + "/":                                                             "Failed to connect",
		"curl -sS -m 300 -x http://10.199.0.1:3128 https://evil.n1.test/":                                           "403",
		"curl -sS -m 300 -x http://10.199.0.1:3128 https://" + evil.address + "/":                                   "403",
		"curl -sS -m 300 --resolve evil.n1.test:443:" + evil.address + " https://evil.n1.test/":                     "Failed to connect",
		"curl -sS -m 300 --resolve evil.n1.test:443:198.18.77.77 https://evil.n1.test/":                             "Failed to connect",
		"curl -sS -m 300 -k --connect-to evil.n1.test:443:api.n1.test:443 https://evil.n1.test/ -w '%{http_code}' ": "SSL",
		"curl -sS -m 300 -k --resolve evil.n1.test:443:10.199.0.1 https://evil.n1.test/":                            "Failed to connect",
		"curl -sS -m 300 http://evil.n1.test/ -x http://10.199.0.1:3128":                                            "crannog: blocked GET http://evil.n1.test/ rule=network.unlisted",
		"python3 -c 'import urllib.request as u; u.urlopen(\"https://evil.n1.test/\", timeout=9)' 2>&1 | tail -n1":  "not known",
		"python3 -c 'import socket; socket.create_connection((\"" + evil.address + "\", 443), 9)' 2>&1 | tail -n1":  "refused",
		"curl -sS -m 300 --doh-url https://" + evil.address + "/dns-query https://evil.n1.test/":                    "resolve",
	} {
		out, code := b.sh(line)
		if strings.Contains(line, "| tail") {
			code = 1
		}
		blocked := strings.Contains(out, "crannog: blocked")
		if code == 0 && !blocked || !strings.Contains(out, want) || strings.Contains(out, "hello") {
			t.Errorf("%s: exit %d, %s", line, code, out)
		}
	}
	b.requireLines(b.python(`
s, answer = connect('evil.n1.test:443')
print(first(answer), rule(answer), 'allow with --allow evil.n1.test' in answer)
`), "HTTP/1.1 403 Forbidden network.unlisted True")
	if n := len(evil.seen()); n > 0 || len(a.dials(evil.address)) > 0 || len(a.lookupsOf("evil.n1.test")) > 0 {
		t.Errorf("the unlisted host was reached: %d requests, dials %v", n, a.dials(evil.address))
	}
	b.awaitFlow("the name", func(r api.FlowRecord) bool { return r.Kind == "dns" && r.Host == "evil.n1.test" && r.Effect == "deny" })
	b.awaitFlow("the address", func(r api.FlowRecord) bool { return r.Kind == "tcp" && r.Host == evil.address && r.Effect == "deny" })
	b.awaitFlow("CONNECT", func(r api.FlowRecord) bool {
		return r.Kind == "connect" && r.Host == "evil.n1.test" && r.Effect == "deny" && r.Fix == "--allow evil.n1.test"
	})
	if out, code := b.sh("curl -sS -m 300 https://api.n1.test/x"); code != 0 || out != "hello from api.n1.test" || len(good.seen()) != 1 {
		t.Errorf("the listed host: exit %d, %s", code, out)
	}
}

// P17: a program that ignores or changes the proxy variables reaches no other hosts.
func TestN2ProxyVariablesIgnored(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	a.web(t, 443, nil, "api.n2.test")
	evil := a.web(t, 443, nil, "evil.n2.test")
	b := a.newSandbox(t, "network: {unlisted: deny, hosts: [{host: api.n2.test, rules: [{methods: [GET], do: allow}]}]}\n")
	if out, code := b.sh("curl -sS -m 300 --noproxy '*' --resolve evil.n2.test:443:" + evil.address + " https://evil.n2.test/"); code == 0 {
		t.Errorf("around the proxy: %s", out)
	}
	// The listed host is reached the same way with and without a proxy.
	for _, option := range []string{"--noproxy '*'", "-x http://10.199.0.1:3128"} {
		if out, code := b.sh("curl -sS -m 300 " + option + " https://api.n2.test/"); code != 0 || out != "hello from api.n2.test" {
			t.Errorf("%s: exit %d, %s", option, code, out)
		}
	}
	for _, user := range []string{"user", "root"} {
		b.requireLines(b.pythonAs(user, fmt.Sprintf(`
for port in (22, 53, 80, 443, 8080):
    print(reach(%q, port) if port != 53 else 'ECONNREFUSED')
for family, kind, proto in ((socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_INET, socket.SOCK_RAW, 255), (socket.AF_PACKET, socket.SOCK_RAW, 0x300)):
    try:
        s = socket.socket(family, kind, proto)
        s.settimeout(1)
        if family == socket.AF_PACKET:
            s.bind(('eth0', 0x800))
            s.send(b'\xff' * 60)
        else:
            s.sendto(b'\x08\0\xf7\xff\0\0\0\0', (%q, 0))
        print('answered' if s.recv(100)[20:21] == b'\0' else 'echo')
    except Exception as e:
        print('nothing')
`, evil.address, evil.address)), "ECONNREFUSED", "ECONNREFUSED", "ECONNREFUSED", "ECONNREFUSED", "ECONNREFUSED", "nothing", "nothing", "nothing")
	}
	// The gateway is the route to every address, and root cannot change that.
	b.pythonAs("root", `
import subprocess
for line in ('ip link add dummy0 type dummy', 'ip route add default via 10.199.0.3'):
    subprocess.run(line.split(), capture_output=True) if os.path.exists('/usr/sbin/ip') or os.path.exists('/usr/bin/ip') else None
`)
	if len(evil.seen()) > 0 || len(a.dials(evil.address)) > 0 {
		t.Error("the unlisted host was reached")
	}
}

// P18: only the gateway resolves names, once, when it dials.
func TestN3DNSTunnelling(t *testing.T) {
	need(t)
	t.Parallel()
	n3DNSTunnelling(t, sharedEnvironment(t))
}

func n3DNSTunnelling(t *testing.T, a *environment) {
	wild := a.web(t, 443, nil, "one.wild.n3.test")
	b := a.newSandbox(t, "network: {unlisted: deny, hosts: [{host: '*.wild.n3.test', rules: [{methods: [GET], do: allow}]}]}\n")
	before := len(a.lookupsOf(""))
	b.requireLines(b.python(`
def all(make, **k): return sorted(set(query(make(i), 1, **k) for i in range(20)))
print(all(lambda i: 'data%d.evil.n3.test' % i))
print(all(lambda i: 'data%d.wild.n3.test' % i))
print(all(lambda i: 'data%d.evil.n3.test' % i, server='8.8.8.8'))
print(all(lambda i: 'more%d.wild.n3.test' % i, server='1.1.1.1'))
print(all(lambda i: 'data%d.evil.n3.test' % i, tcp=True))
print(query('x.wild.n3.test', 16), query('x.wild.n3.test', 10), query('x.wild.n3.test', 16, server='8.8.8.8', tcp=True))
`), "['3/0']", "['0/1']", "['3/0']", "['0/1']", "['3/0']", "5/0 5/0 5/0")
	if n := len(a.lookupsOf("")) - before; n != 0 {
		t.Errorf("got %d lookups outside, want 0: %v", n, a.lookupsOf("n3.test"))
	}
	if n := len(slices.DeleteFunc(b.records("dns"), func(r api.FlowRecord) bool { return !strings.HasSuffix(r.Host, "n3.test") })); n < 100 {
		t.Errorf("got %d entries of 103 queries, want at least 100", n)
	}
	if out, _ := b.sh("curl -sS -m 300 https://one.wild.n3.test/"); out != "hello from one.wild.n3.test" || len(wild.seen()) != 1 || len(a.lookupsOf("one.wild.n3.test")) != 1 {
		t.Errorf("the name below the wildcard: %s, lookups %v", out, a.lookupsOf("n3.test"))
	}
}

// P18: encrypted lookups and TLS hellos with an encrypted name do not get around the gateway.
func TestN4EncryptedNames(t *testing.T) {
	need(t)
	t.Parallel()
	n4EncryptedNames(t, sharedEnvironment(t))
}

func n4EncryptedNames(t *testing.T, a *environment) {
	a.web(t, 443, nil, "api.n4.test")
	a.web(t, 443, nil, "pass.n4.test")
	doh := a.web(t, 443, nil, "dns.n4.test")
	b := a.newSandbox(t, `
level: minimal
network:
  unlisted: deny
  hosts:
    - {host: api.n4.test, rules: [{methods: [GET], do: allow}]}
    - {host: pass.n4.test, rules: [{do: allow}]}
`)
	b.requireLines(b.python(`
for kind in (65, 64, 28): print(query('api.n4.test', kind))
for kind in (16, 15, 10, 255, 252): print(query('api.n4.test', kind))
print(reach('10.199.0.1', 853), reach('1.1.1.1', 853), reach('8.8.8.8', 443))
print(reach('dns.n4.test', 443))
print(query('api.n4.test', 1), handshake('api.n4.test'))
`), "0/0", "0/0", "0/0", "5/0", "5/0", "5/0", "5/0", "5/0", "ECONNREFUSED ECONNREFUSED ECONNREFUSED", "no-name", "0/1 done")
	// A TLS hello can hide a second, encrypted name. The gateway answers it itself or not at all,
	// because the host could decrypt the name and route by it.
	for _, host := range []string{"api.n4.test", "pass.n4.test"} {
		before := len(a.dials(""))
		b.requireLines(b.python(fmt.Sprintf(`
def hello(host, ech):
    def ext(kind, data): return struct.pack('>HH', kind, len(data)) + data
    name = host.encode()
    exts = ext(0, struct.pack('>HBH', len(name) + 3, 0, len(name)) + name)
    exts += ext(10, b'\0\2\0\x1d') + ext(13, b'\0\4\4\3\8\4'.replace(b'\8', b'\x08')) + ext(43, b'\2\3\4')
    exts += ext(51, struct.pack('>HHH', 36, 29, 32) + b'\x09' * 32)
    if ech: exts += ext(0xfe0d, b'\0\0\1\0\1\7\0\x20' + b'k' * 32 + struct.pack('>H', 64) + b'p' * 64)
    b = b'\3\3' + b'r' * 32 + b'\0' + b'\0\2\x13\1' + b'\1\0' + struct.pack('>H', len(exts)) + exts
    h = b'\1' + struct.pack('>I', len(b))[1:] + b
    return b'\x16\3\1' + struct.pack('>H', len(h)) + h
def outcome(name, ech):
    got = raw(socket.create_connection((%q, 443), 5), hello(name, ech))
    return 'server hello' if got[:1] == '\x16' else 'closed'
print(outcome('other.n4.test', True), outcome(%q, True))
`, host, host)), "closed server hello")
		if n := len(a.dials("")) - before; n != 0 {
			t.Errorf("%s: got %d dials for a hidden name, want 0", host, n)
		}
		b.requireLines(b.python(fmt.Sprintf("print(handshake(%q, ca='/tmp/world.pem' if %v else None))", host, pythonBool(host == "pass.n4.test"))), "done")
		if n := len(a.dials("")) - before; host == "pass.n4.test" && n != 1 {
			t.Errorf("%s: got %d dials for an honest hello that is passed on, want 1", host, n)
		}
	}
	if len(doh.seen()) > 0 {
		t.Error("the resolver over HTTPS was reached")
	}
}

func TestN5QUIC(t *testing.T) {
	need(t)
	t.Parallel()
	n5QUIC(t, sharedEnvironment(t))
}

func n5QUIC(t *testing.T, a *environment) {
	a.web(t, 443, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Alt-Svc", `h3=":443"; ma=86400`)
		w.Header().Set("X-Kept", "yes")
	}, "api.n5.test")
	b := a.newSandbox(t, "network: {unlisted: deny, hosts: [{host: api.n5.test, rules: [{methods: [GET], do: allow}]}]}\n")
	b.requireLines(b.python(`
print(udp('api.n5.test', 443), udp('8.8.8.8', 443), udp('10.199.0.1', 443), udp('8.8.8.8', 123))
a = get('api.n5.test').lower()
print('alt-svc' in a, 'x-kept: yes' in a)
`), "ECONNREFUSED ECONNREFUSED ECONNREFUSED ECONNREFUSED", "False True")
	b.awaitFlow("a datagram", func(r api.FlowRecord) bool { return r.Kind == "packet" && r.Effect == "deny" && r.Port == 443 })
}

// pythonBool returns a boolean as Python spells it.
func pythonBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}
