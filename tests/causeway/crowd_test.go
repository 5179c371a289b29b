package causeway_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// peak returns the most memory that a process has had so far, and how many descriptors it has open
// now. The gateway hides both from its own user, so only root counts them.
func peak(t testing.TB, pid int) (bytes int64, descriptors int) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(data), "VmHWM:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); !found || err != nil {
		t.Fatalf("parse the peak memory of the gateway: %v: %s", err, data)
	}
	if os.Geteuid() == 0 {
		descriptors = len(hosttest.Descriptors(t, pid))
	}
	return kib << 10, descriptors
}

// latencyProgram makes requests and prints the 99th percentile of their times in milliseconds.
const latencyProgram = `
c = tls('other.n22.test')
times = []
for i in range(200):
    began = time.monotonic()
    c.sendall(b'GET / HTTP/1.1\r\nHost: other.n22.test\r\n\r\n')
    if b'200 OK' not in c.recv(4096): raise Exception('no answer')
    times.append(time.monotonic() - began)
print(int(sorted(times)[-3] * 1000))
`

// bombSize is the uncompressed size of a small answer. It is more than maxGrowth, the most that the
// gateway's memory may grow by.
const (
	bombSize  = 256 << 20
	maxGrowth = 160 << 20
)

// abuses are programs that attack the gateway, with the output that they print if each of its
// limits held.
var abuses = []struct{ name, text, want string }{
	{"slow requests", `
def established(c): return c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 1
held, refused, most = [], 0, 0
address = socket.gethostbyname('api.n22.test')
# On a slow machine the gateway closes the first connections before the last ones are open.
while len(held) < 5000 and refused < 50:
    try:
        c = socket.create_connection((address, 443), 300)
        c.sendall(b'\x16\3\1')
        held.append(c)
    except OSError: refused += 1
    if len(held) >= 200: most = max(most, sum(map(established, held)))
print(200 <= most <= 256, refused == 50)
# The gateway closes connections that send no more, which makes room for others.
for c in held:
    c.settimeout(300)
    try: rest = c.recv(100)
    except ConnectionError: rest = b''
    c.close()
    if rest: raise Exception('answered')
print(status(get('api.n22.test')))
`, "True True\n200"},
	{"connections", `
socket.setdefaulttimeout(0.3)
def established(c):
    try: return c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 1
    except OSError: return False
held, tried, most = [], 0, 0
late = time.monotonic() + 300
address = socket.gethostbyname('api.n22.test')
while tried < 10000:
    c = socket.socket()
    c.setblocking(False)
    c.connect_ex((address, 443) if tried % 2 else (GATEWAY, 3128))
    held.append(c)
    tried += 1
    if len(held) < 800: continue
    # The gateway accepts slowly on a busy machine. Open connections stay open, so that their
    # number would pass the limit if the gateway had none.
    up = [c for c in held if established(c)]
    while max(most, len(up)) < 200 and time.monotonic() < late:
        time.sleep(0.01)
        up = [c for c in held if established(c)]
    most = max(most, len(up))
    for c in held:
        if c not in up or len(up) > 600: c.close()
    held = up if len(up) <= 600 else []
print('up to the limit' if 200 <= most <= 256 else most)
`, "up to the limit"},
	{"headers", `
c = tls('api.n22.test')
sent = 0
try:
    c.sendall(b'GET / HTTP/1.1\r\nHost: api.n22.test\r\n')
    while sent < 1 << 30:
        c.sendall(b'X-%d: ' % sent + b'x' * 65000 + b'\r\n')
        sent += 65000
except OSError: pass
print(0 < sent < 16 << 20)
`, "True"},
	{"bomb", `
got = 0
c = tls('api.n22.test')
c.sendall(b'GET /bomb HTTP/1.1\r\nHost: api.n22.test\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n')
while True:
    part = c.recv(1 << 20)
    if not part: break
    got += len(part)
# The gateway decompresses the answer, since a secret could be in it.
print(256 << 20 <= got < 300 << 20)
`, "True"},
	{"answered headers", `print(status(get('api.n22.test', '/headers')))`, "502"},
	{"names", `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setblocking(False) # a blocked send is not woken when a full attachment has room again
began, sent, got = time.monotonic(), 0, 0
for i in range(3000):
    try: sent += s.sendto(struct.pack('>HHHHHH', i & 65535, 0x100, 1, 0, 0, 0) + b'\x0a%010d\x03n22\x04test\0\0\1\0\1' % i, (GATEWAY, 53)) > 0
    except OSError: pass
s.settimeout(1)
try:
    while s.recv(600): got += 1
except OSError: pass
print(sent > 1000, 0 < got <= 200 * (time.monotonic() - began + 1))
print(any(query('api.n22.test', 1, seconds=1) == '0/1' for i in range(20)))
`, "True True\nTrue"},
}

// One sandbox's abuse of the gateway does not affect others, and does not use up the gateway's
// memory.
func TestN22Abuse(t *testing.T) {
	need(t)
	a := ownEnvironment(t)
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range bombSize >> 20 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	z.Close()
	a.web(t, 443, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		case "/headers":
			for i := range 64 {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1<<20))
			}
		}
	}, "api.n22.test")
	var served, stall atomic.Int64
	a.web(t, 443, func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1)%50 == 0 {
			time.Sleep(time.Duration(stall.Load()))
		}
		_, _ = io.WriteString(w, "hello")
	}, "other.n22.test")
	a.storeSecret(t, "N22", canary)
	limits := small
	limits.CommandTimeoutSeconds = 1800 // heavy work takes long on a busy machine
	evil := a.newSandbox(t, `
network: {unlisted: deny, hosts: [{host: api.n22.test, rules: [{methods: [GET], do: allow}]}]}
secrets: {bind: [{name: N22, host: api.n22.test, header: Authorization}]}
`, crannog.Limits(limits))
	good := a.newSandbox(t, "network: {unlisted: deny, hosts: [{host: other.n22.test, rules: [{methods: [GET], do: allow}]}]}\n")
	p99 := func() int {
		n, err := strconv.Atoi(good.line(latencyProgram))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	quiet := p99()
	// The machine has two cores and the attack takes one, so that a neighbour may wait for the
	// other.
	maxLatency := 20*quiet + int(400*hosttest.Slowness())
	stall.Store(int64(time.Duration(maxLatency+100) * time.Millisecond))
	if got := p99(); got <= maxLatency {
		t.Fatalf("control: with a pausing server the p99 is %d ms, want more than %d ms", got, maxLatency)
	}
	stall.Store(0)
	pid := servetest.CausewayPID(t, a.state)
	// Other load may slow down the neighbour too, but not at each of several tries.
	const tries = 4
	attack := func(abuse struct{ name, text, want string }, try int) (noticed bool) {
		before, _ := peak(t, pid)
		done := make(chan string, 1)
		go func() {
			out, code := evil.exec("", "import sys\nsys.path.insert(0, '/tmp')\nfrom tools import *\n"+abuse.text, "python3", "-")
			done <- fmt.Sprintf("%s (exit %d)", out, code)
		}()
		busy := p99()
		if out := <-done; out != abuse.want+" (exit 0)" {
			t.Errorf("%s: the attack printed %s", abuse.name, out)
		}
		if noticed = busy > maxLatency; noticed && try == tries {
			t.Errorf("%s: the neighbour's p99 is %d ms at try %d, and %d ms without an attack", abuse.name, busy, try, quiet)
		}
		size, files := peak(t, pid)
		if size-before > maxGrowth || files > 1000 {
			t.Errorf("%s: the gateway grew by %d MiB and has %d open descriptors", abuse.name, (size-before)>>20, files)
		}
		t.Logf("%s: p99 %d ms, quiet %d ms; %d MiB, before %d MiB; %d descriptors", abuse.name, busy, quiet, size>>20, before>>20, files)
		return noticed
	}
	for _, abuse := range abuses {
		for try := 1; try <= tries && attack(abuse, try); try++ {
		}
	}
	// The audit log has an entry for each answered query of the flood, and for no other.
	if n := len(evil.records("dns")); n == 0 || n > 2000 {
		t.Errorf("got %d entries of DNS queries, want 1 to 2000", n)
	}
	if got := good.line("print(status(get('other.n22.test')))"); got != "200" {
		t.Errorf("the neighbour's request after all attacks: got %s, want 200", got)
	}
	if servetest.CausewayPID(t, a.state) != pid {
		t.Error("the gateway was restarted")
	}
}

func TestN23TwoSandboxes(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	up := a.web(t, 443, nil, "api.n23.test")
	a.storeSecret(t, "N23A", "key-of-a-0123456789abcdef")
	a.storeSecret(t, "N23B", "key-of-b-0123456789abcdef")
	document := func(secret, path string) string {
		return fmt.Sprintf(`
network: {unlisted: deny, hosts: [{host: api.n23.test, rules: [{methods: [GET], paths: [%s], do: allow}]}]}
secrets: {bind: [{name: %s, host: api.n23.test, header: Authorization}]}
`, path, secret)
	}
	first, second := a.newSandbox(t, document("N23A", "/a/*")), a.newSandbox(t, document("N23B", "/b/*"))
	program := `
for i in range(3): print(status(get('api.n23.test', '/a/x')), status(get('api.n23.test', '/b/x')))
print(socket.gethostbyname('api.n23.test'))
`
	one, two := first.python(program), second.python(program)
	first.requireLines(one[:3], "200 403", "200 403", "200 403")
	second.requireLines(two[:3], "403 200", "403 200", "403 200")
	// The gateway keeps connections open between requests, separately for each sandbox.
	from := map[string]string{}
	for _, r := range up.seen() {
		key := "key-of-" + r.Path[1:2] + "-0123456789abcdef"
		if r.auth() != key {
			t.Errorf("%s carries %q", r.Path, r.auth())
		}
		if other, ok := from[r.From]; ok && other != key {
			t.Errorf("a connection served both sandboxes: %s", r.From)
		}
		from[r.From] = key
	}
	if len(up.seen()) != 6 {
		t.Errorf("the fake internet got %d requests", len(up.seen()))
	}
	for _, c := range []struct{ mine, other *testSandbox }{{first, second}, {second, first}} {
		for _, r := range c.mine.records() {
			if r.Sandbox != c.mine.ID() {
				t.Errorf("the log has another sandbox's entry: %+v", r)
			}
		}
		if out := c.mine.must("cat /etc/ssl/certs/ca-certificates.crt | sha256sum"); out == c.other.must("cat /etc/ssl/certs/ca-certificates.crt | sha256sum") {
			t.Error("two sandboxes trust the same certificate authority")
		}
	}
}
