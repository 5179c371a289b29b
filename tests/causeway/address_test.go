package causeway_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog/api"
)

// forbidden maps a label to addresses that no listed name may resolve to.
var forbidden = map[string][]string{
	"private":   {"10.0.0.5"},
	"home":      {"192.168.1.1"},
	"metadata":  {"169.254.169.254"},
	"azure":     {"168.63.129.16"},
	"zero":      {"0.0.0.0"},
	"loopback":  {"127.0.0.1"},
	"six":       {"::1"},
	"mapped":    {"::ffff:127.0.0.1"},
	"nat64":     {"64:ff9b::7f00:1"},
	"sixtofour": {"2002:7f00:1::"},
	"teredo":    {"2001:0:5ef5:79fd:0:59f:80ff:fffe"},
	"linklocal": {"fe80::1"},
	"aws":       {"fd00:ec2::254"},
	"multicast": {"224.0.0.1"},
	"broadcast": {"255.255.255.255"},
	"synthetic": {"198.18.0.1"},
	"box":       {"10.199.0.1"},
	"mixed":     {"93.184.99.99", "10.0.0.5"},
	"turned":    {"127.0.0.1", "93.184.99.99"},
}

func TestN10NamesOfForbiddenAddresses(t *testing.T) {
	need(t)
	t.Parallel()
	n10NamesOfForbiddenAddresses(t, sharedEnvironment(t))
}

func n10NamesOfForbiddenAddresses(t *testing.T, a *environment) {
	a.web(t, 443, nil, "api.n10.test")
	inside := a.web(t, 443, nil, "db.n10.test")
	a.setAddresses("db.n10.test", "10.20.0.9")
	l := a.listenAt(t, "10.20.0.9", 443)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			a.mu.Lock()
			to := a.listeners[inside.address+":443"]
			a.mu.Unlock()
			to <- c
		}
	}()
	var hosts, names []string
	for n, addresses := range forbidden {
		name := n + ".n10.test"
		a.setAddresses(name, addresses...)
		names = append(names, name)
		hosts = append(hosts, "    - {host: "+name+", ports: [443, 80], rules: [{methods: [GET], do: allow}]}\n")
	}
	hostAddresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range hostAddresses {
		name := fmt.Sprintf("own%d.n10.test", i)
		a.setAddresses(name, o.(*net.IPNet).IP.String())
		names = append(names, name)
		// The rule lists all private ranges; the host's own addresses stay denied.
		hosts = append(hosts, "    - {host: "+name+", ports: [443, 80], cidrs: [10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, 192.0.2.0/24, 198.51.100.0/24, 203.0.113.0/24, 'fc00::/7'], rules: [{methods: [GET], do: allow}]}\n")
	}
	b := a.newSandbox(t, "network:\n  unlisted: deny\n  hosts:\n    - {host: api.n10.test, rules: [{methods: [GET], do: allow}]}\n"+
		"    - {host: db.n10.test, cidrs: [10.20.0.0/24], rules: [{methods: [GET], do: allow}]}\n"+strings.Join(hosts, ""))
	before := a.dials("")
	got := b.python(fmt.Sprintf(`
for name in %s:
    a = get(name)
    s = socket.create_connection((name, 80), 5)
    p = raw(s, 'GET / HTTP/1.1\r\nHost: %%s\r\nConnection: close\r\n\r\n' %% name)
    print(name, status(a), status(p))
`, mustJSON(t, names)))
	for i, line := range got {
		if line != names[i]+" 502 502" {
			t.Errorf("got %s for a name with a forbidden address (%s)", line, forbidden[strings.TrimSuffix(names[i], ".n10.test")])
		}
	}
	if len(got) != len(names) || len(a.dials("")) != len(before) {
		t.Errorf("got %d answers, want %d; unexpected dials %v", len(got), len(names), a.dials("")[len(before):])
	}
	for _, n := range names {
		b.awaitFlow(n, func(r api.FlowRecord) bool {
			return r.Host == n && r.Kind == "http" && r.Effect == "deny" && strings.HasPrefix(r.Rule, "floor.") && r.Status == 502
		})
	}
	b.requireLines(b.python("print(status(get('api.n10.test')), status(get('db.n10.test')))"), "200 200")
	if d := a.dials("10.20.0.9"); len(d) != 1 {
		t.Errorf("dials of the private address that a rule lists: got %v, want 1", d)
	}
}

// P18: the gateway dials the address that it checked. A second lookup would let DNS rebinding swap
// it.
func TestN11Rebinding(t *testing.T) {
	need(t)
	t.Parallel()
	n11Rebinding(t, sharedEnvironment(t))
}

func n11Rebinding(t *testing.T, a *environment) {
	api := a.web(t, 443, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // so that each request needs a new connection and lookup
	}, "api.n11.test")
	victim := a.listenAt(t, "127.0.0.1", 443)
	reached := make(chan struct{}, 16)
	go func() {
		for {
			c, err := victim.Accept()
			if err != nil {
				return
			}
			c.Close()
			reached <- struct{}{}
		}
	}()
	b := a.newSandbox(t, "network: {unlisted: deny, hosts: [{host: api.n11.test, rules: [{methods: [GET], do: allow}]}]}\n")
	good, bad := []string{api.address}, []string{"127.0.0.1"}
	a.setAddressesInTurn("api.n11.test", good, bad, good, bad)
	b.requireLines(b.python(`
for i in range(4): print(status(get('api.n11.test')))
print(status(get('api.n11.test')))
`), "200", "502", "200", "502", "200")
	if n := len(a.lookupsOf("api.n11.test")); n != 5 {
		t.Errorf("got %d lookups for 5 connections, want 5", n)
	}
	if len(reached) > 0 || len(a.dials("127.0.0.1")) > 0 {
		t.Error("loopback was dialled")
	}
	// A program that looks up a name again gets the same address.
	b.requireLines(b.python("x = set(socket.gethostbyname('api.n11.test') for i in range(20)); print(len(x), list(x)[0].startswith('198.1'))"), "1 True")
}

func TestN16HostParsers(t *testing.T) {
	need(t)
	t.Parallel()
	n16HostParsers(t, sharedEnvironment(t))
}

func n16HostParsers(t *testing.T, a *environment) {
	good, evil := a.web(t, 443, nil, "api.n16.test"), a.web(t, 443, nil, "evil.n16.test")
	a.web(t, 443, nil, "xn--pi-7kc.n16.test")
	b := a.newSandbox(t, "network: {unlisted: deny, hosts: [{host: api.n16.test, rules: [{methods: [GET], do: allow}]}, {host: '*.ok.n16.test', rules: [{methods: [GET], do: allow}]}]}\n")
	targets := []string{
		"evil.n16.test\x00.ok.n16.test", "evil.n16.test%00.ok.n16.test", "evil.n16.test#.ok.n16.test", "evil.n16.test/.ok.n16.test", "evil.n16.test?.ok.n16.test",
		"x@api.n16.test@evil.n16.test", "api.n16.test@evil.n16.test", "api.n16.test:443@evil.n16.test", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]",
		"0", "localhost", "\u0430pi.n16.test", "api.n16.test\u3002", "\uff41pi.n16.test", "a..ok.n16.test", "-.ok.n16.test", "a_b.ok.n16.test", ".ok.n16.test", "ok.n16.test",
		"evil.n16.test\\.ok.n16.test", "evil.n16.test\t.ok.n16.test", "*.ok.n16.test", "api.n16.test,evil.n16.test", strings.Repeat("a", 64) + ".ok.n16.test", strings.Repeat("a.", 130) + "ok.n16.test",
		"xn--pi-7kc.n16.test", "169.254.169.254", "2852039166", "10.199.0.1",
	}
	before := len(a.dials(""))
	got := b.python(fmt.Sprintf(`
from concurrent.futures import ThreadPoolExecutor
def attempt(t):
    t = t.encode('utf-8').decode('latin-1')
    s = socket.create_connection((GATEWAY, 3128), 5)
    a = raw(s, 'CONNECT %%s:443 HTTP/1.1\r\nHost: %%s:443\r\n\r\n' %% (t, t))
    s = socket.create_connection((GATEWAY, 3128), 5)
    p = raw(s, 'GET http://%%s/ HTTP/1.1\r\nHost: %%s\r\nConnection: close\r\n\r\n' %% (t, t))
    return status(a), status(p)
with ThreadPoolExecutor(8) as pool:
    for answers in pool.map(attempt, %s): print(*answers)
`, mustJSON(t, targets)))
	for i, line := range got {
		if f := strings.Fields(line); len(f) != 2 || f[0][:1] != "4" || f[1][:1] != "4" {
			t.Errorf("a request to %q: got %s, want client errors", targets[i], line)
		}
	}
	if len(got) != len(targets) || len(evil.seen()) > 0 || len(a.dials("")) != before {
		t.Errorf("got %d answers, want %d; unexpected dials %v", len(got), len(targets), a.dials("")[before:])
	}
	// Spellings of a name that mean the same are treated as the same.
	b.requireLines(b.python(`
for n in ('api.n16.test', 'API.n16.test', 'api.n16.test.'):
    s, a = connect(n + ':443')
    print(status(a), status(raw(tls('api.n16.test', via=s), 'GET / HTTP/1.1\r\nHost: api.n16.test\r\nConnection: close\r\n\r\n')) if status(a) == '200' else '')
print(query('API.N16.TEST', 1), query('xn--pi-7kc.n16.test', 1), query('evil.n16.test.ok', 1))
`), "200 200", "200 200", "200 200", "0/1 3/0 3/0")
	if len(good.seen()) != 3 {
		t.Errorf("the listed host got %+v, want 3 requests", good.seen())
	}
}

func TestN18IPv6(t *testing.T) {
	need(t)
	t.Parallel()
	n18IPv6(t, sharedEnvironment(t))
}

func n18IPv6(t *testing.T, a *environment) {
	a.web(t, 443, nil, "api.n18.test")
	b := a.newSandbox(t, "network: {unlisted: deny, hosts: [{host: api.n18.test, rules: [{methods: [GET], do: allow}]}]}\n")
	for _, user := range []string{"user", "root"} {
		got := b.pythonAs(user, `
def six(address, port):
    try:
        s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        s.settimeout(3)
        s.connect((address, port))
        return 'open'
    except Exception as e:
        return word(e)
for address in ('fe80::1%eth0', 'fe80::1', 'fe80::5054:ff:fe12:3456%eth0', '2606:2800:220:1::1', '::ffff:10.199.0.1', '::ffff:93.184.216.34', '64:ff9b::808:808', 'ff02::1%eth0'):
    for port in (443, 22): print(address, port, six(address, port))
print('aaaa', query('api.n18.test', 28))
# Ask the kernel for all addresses of a family except those of lo: it has one of IPv4 (2), none of
# IPv6 (10).
def addresses(family):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.send(struct.pack('=IHHIIB3x', 20, 22, 0x301, 1, 0, family))
    n = 0
    while True:
        data = s.recv(65536)
        while data:
            size, kind = struct.unpack('=IH', data[:6])
            if kind in (2, 3): return n
            fam, _, _, scope, index = struct.unpack('=BBBBI', data[16:24])
            if kind == 20 and fam == family and index != socket.if_nametoindex('lo'): n += 1
            data = data[(size + 3) // 4 * 4:]
print('addresses', addresses(2), addresses(10))
print('four', status(get('api.n18.test')))
`)
		for _, line := range got {
			if contains(line, "open") {
				t.Errorf("a connection was opened as %s: %s", user, line)
			}
		}
		b.requireLines(got[len(got)-3:], "aaaa 0/0", "addresses 1 0", "four 200")
	}
}
