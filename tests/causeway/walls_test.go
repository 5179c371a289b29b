package causeway_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/engine/jail"
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// minimalPolicy is the most permissive policy: it opens everything that a policy can open.
const minimalPolicy = "level: minimal\n"

func TestN19HostAndSiblingsAreUnreachable(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	up := a.web(t, 443, nil, "api.n19.test")
	a.setAddresses("localhost", "127.0.0.1")
	b := a.newSandbox(t, minimalPolicy, crannog.Net("open"))
	sibling := a.newSandbox(t, minimalPolicy, crannog.Net("open"))
	sibling.must("(python3 -m http.server 8000 --bind 0.0.0.0 >/dev/null 2>&1 &) ; for i in 1 2 3 4 5 6 7 8 9; do curl -s -o /dev/null http://127.0.0.1:8000/ && exit 0; sleep 0.2; done; exit 1")
	// Services of the host: on all of its addresses, and on sockets.
	var hostPorts []string
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	reached := make(chan struct{}, 100)
	for _, l := range []net.Listener{l, listenAbstract(t), listenSocket(t, a.state)} {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				reached <- struct{}{}
				c.Close()
			}
		}()
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range addresses {
		if ip := o.(*net.IPNet).IP; ip.To4() != nil {
			hostPorts = append(hostPorts, ip.String())
		}
	}
	_, exchange, _ := net.SplitHostPort(a.Address)
	// The sandbox made attempts of its own before it was ready.
	before := b.records()
	lastSeq := before[len(before)-1].Seq
	for _, user := range []string{"user", "root"} {
		got := b.pythonAs(user, fmt.Sprintf(`
from concurrent.futures import ThreadPoolExecutor
hosts = %s + ['10.199.0.1', '10.199.0.3', '10.199.0.0', '169.254.169.254', '172.17.0.1', '192.168.0.1', '198.18.0.0', '224.0.0.251', '255.255.255.255', '0.0.0.0']
all = [(h, p) for h in hosts for p in (%s, %s, 22, 53, 80, 443, 3128, 8000, 8080, 5355)]
with ThreadPoolExecutor(70) as pool:
    for (h, p), r in zip(all, pool.map(lambda x: reach(x[0], x[1], 1), all)):
        # Only the gateway and this sandbox itself may answer.
        if r == 'open' and h != '0.0.0.0' and not h.startswith('127.'): print('open', h, p)
print('named', reach('host.docker.internal', 80), reach('localhost.n19', 80), reach('gateway', 80))
for path in ('\0%s', %q, '/run/docker.sock', '/var/run/docker.sock', '/run/dbus/system_bus_socket', '/run/containerd/containerd.sock'):
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(path)
        print('open', repr(path))
    except OSError as e: pass
listening = [l.split()[1] for l in open('/proc/net/tcp').readlines()[1:] if l.split()[3] == '0A']
print('listening', len(listening))
`, mustJSON(t, hostPorts), port, exchange, abstractName, filepath.Join(a.state, "n19.sock")))
		for _, line := range got {
			if strings.HasPrefix(line, "open") && line != "open 10.199.0.1 3128" && !strings.HasSuffix(line, " 53") {
				t.Errorf("%s reached a service of the host: %s", user, line)
			}
		}
	}
	if len(reached) > 0 {
		t.Errorf("%d connections reached services of the host", len(reached))
	}
	// The gateway's proxy does not lead to these addresses either.
	b.requireLines(b.python(fmt.Sprintf(`
s, a = connect('localhost:%s')
print('HTTP/1.1 200 OK' in a + raw(s, 'GET / HTTP/1.1\r\nHost: localhost:%s\r\n\r\n'))
for t in ('127.0.0.1:%s', '10.199.0.1:3128', '10.199.0.2:22', '169.254.169.254:80'):
    print(status(connect(t)[1]) in ('400', '403', '502'))
print(status(raw(socket.create_connection((GATEWAY, 3128), 5), 'GET http://127.0.0.1:%s/ HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\n\r\n')) in ('400', '403', '502'))
print(status(get('api.n19.test', ca='/tmp/world.pem')))
`, port, port, port, port, port)), "False", "True", "True", "True", "True", "True", "200")
	if len(reached) > 0 || len(up.seen()) != 1 || len(a.dials("127."))+len(a.dials("10.199"))+len(a.dials("169.254.")) > 0 {
		t.Errorf("got dials %v, want only the listed host", a.dials(""))
	}
	// The audit log has each attempt with the deciding rule, and only the one request as allowed.
	wantRules := map[string]string{"169.254.169.254": "floor.address", "192.168.0.1": "floor.private", "198.18.0.0": "floor.name", "10.199.0.1": "floor.name"}
	for _, h := range hostPorts {
		if !netip.MustParseAddr(h).IsLoopback() {
			wantRules[h] = "floor.own"
		}
	}
	hostPort, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	attempts := slices.DeleteFunc(b.records("tcp"), func(r api.FlowRecord) bool { return r.Seq <= lastSeq })
	for h, rule := range wantRules {
		for _, p := range []int{hostPort, 22, 80, 443, 3128, 8000, 8080, 5355} {
			if h == "10.199.0.1" && p == 3128 {
				continue // the gateway's proxy
			}
			n := 0
			for _, r := range attempts {
				if r.Host == h && r.Port == p && r.Effect == "deny" && r.Rule == rule && r.Reason != "" && r.Sandbox == b.ID() {
					n++
				}
			}
			// A delayed sandbox retries by itself, so that there may be more entries.
			if n < 2 {
				t.Errorf("got %d entries of attempts at %s:%d by the rule %s, want 2", n, h, p, rule)
			}
		}
	}
	for _, target := range []string{"127.0.0.1", "10.199.0.1", "10.199.0.2", "169.254.169.254"} {
		b.awaitFlow("CONNECT "+target, func(r api.FlowRecord) bool {
			return r.Kind == "connect" && r.Host == target && r.Effect == "deny" && strings.HasPrefix(r.Rule, "floor.")
		})
	}
	for _, target := range []string{"127.0.0.1", "localhost"} {
		b.awaitFlow("a request for "+target, func(r api.FlowRecord) bool {
			return r.Kind == "http" && r.Host == target && r.Port == hostPort && r.Effect == "deny" && r.Rule == "floor.address"
		})
	}
	for _, r := range b.records() {
		if r.Address != "" && (r.Host != "api.n19.test" || !strings.HasPrefix(r.Address, up.address+":")) {
			t.Errorf("an entry shows an address that was not dialled: %+v", r)
		}
	}
	b.awaitFlow("the one request", func(r api.FlowRecord) bool {
		return r.Host == "api.n19.test" && r.Effect == "allow" && strings.HasPrefix(r.Address, up.address)
	})
}

// abstractName contains the process ID, because TestRootless runs the same test at the same time.
var abstractName = "n19-abstract-" + strconv.Itoa(os.Getpid())

// listenAbstract listens on a socket in the abstract namespace.
func listenAbstract(t testing.TB) net.Listener { return unixListener(t, "@"+abstractName) }

// listenSocket listens on a socket in the state directory.
func listenSocket(t testing.TB, state string) net.Listener {
	return unixListener(t, filepath.Join(state, "n19.sock"))
}

func unixListener(t testing.TB, name string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// P24: without the gateway nothing is reachable, and the product shows the network as lost.
func TestN20DeadGatewayDeniesEverything(t *testing.T) {
	need(t)
	t.Parallel()
	a := ownEnvironment(t)
	ended := make(chan struct{}, 1)
	api := a.web(t, 443, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first")
		if r.URL.Path == "/held" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done() // until the gateway's connection is closed
			ended <- struct{}{}
		}
	}, "api.n20.test")
	document := "network: {unlisted: deny, hosts: [{host: api.n20.test, rules: [{methods: [GET], do: allow}]}]}\n"
	b := a.newSandbox(t, document)
	if got := b.line("print(status(get('api.n20.test')))"); got != "200" {
		t.Fatalf("before: %s", got)
	}
	open := make(chan []string, 1)
	go func() {
		open <- b.python(`
c = tls('api.n20.test')
c.sendall(b'GET /held HTTP/1.1\r\nHost: api.n20.test\r\n\r\n')
c.settimeout(300)
got = b''
while b'first' not in got: got += c.recv(1000)
open('/tmp/open', 'w').close()
while not os.path.exists('/tmp/killed'): time.sleep(0.02)
c.settimeout(2)
got = b''
try:
    c.sendall(b'GET /late HTTP/1.1\r\nHost: api.n20.test\r\n\r\n')
    while more := c.recv(1000): got += more
    print('ended', got.strip())
except TimeoutError: print('silent', got.strip())
except OSError: print('ended', got.strip())
`)
	}()
	hosttest.Eventually(t, "a connection is open", func() bool { _, code := b.sh("test -e /tmp/open"); return code == 0 })
	old := servetest.CausewayPID(t, a.state)
	if err := unix.Kill(old, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the sandbox is shown as lost", func() bool {
		sb, err := a.client.Get(t.Context(), b.ID())
		if err != nil {
			t.Fatal(err)
		}
		return sb.Info().Network.Lost
	})
	select {
	case <-ended:
	case <-hosttest.Late():
		t.Error("the server's end of the open connection did not end")
	}
	seen := len(api.seen())
	b.must("touch /tmp/killed")
	b.requireLines(b.python(fmt.Sprintf(`
print(query('api.n20.test', 1, seconds=2) in ('0/1', '3/0'), reach(%q, 443, 2) == 'open', reach('10.199.0.1', 3128, 2) == 'open')
# A lookup is refused and need not run into a time limit to end.
print(reach('api.n20.test', 443), udp('10.199.0.1', 53, 300) != 'silent')
`, api.address)), "False False False", "no-name True")
	if got := strings.Join(<-open, ""); got != "ended b''" && got != "silent b''" || len(api.seen()) != seen {
		t.Errorf("the open connection: got %s; the fake internet got %d requests", got, len(api.seen()))
	}
	// The sandbox itself continues, and a new sandbox has a network.
	b.must("echo fine > /tmp/file && cat /tmp/file")
	next := a.newSandbox(t, document)
	if got := next.line("print(status(get('api.n20.test')))"); got != "200" || servetest.CausewayPID(t, a.state) == old {
		t.Errorf("a request of a new sandbox: got %s through a new gateway, want 200", got)
	}
	if got := b.line("print(reach('api.n20.test', 443, 3))"); got == "open" {
		t.Error("the lost attachment came back by itself")
	}
}

// countEngineProcesses returns the number of engine processes of a state directory. A process that
// still boots does not name a directory and may belong to another test, so it does not count.
func countEngineProcesses(t testing.TB, state string) (n int) {
	t.Helper()
	tag := jail.Tag(filepath.Join(state, "jail"))
	for _, pid := range processes(t) {
		if line := readProc(pid, "cmdline"); strings.HasPrefix(line, "runsc-") && contains(line, state) || strings.HasPrefix(line, setup.Arg0) && contains(line, tag) {
			n++
		}
	}
	return n
}

// P23: an invalid policy starts nothing.
func TestN20InvalidPolicyStartsNothing(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	a.web(t, 443, nil, "api.n20b.test")
	before := countEngineProcesses(t, a.state)
	for name, document := range map[string]string{
		"unknown field":   "network: {unlisted: deny, hosts: [{host: api.n20b.test, rulez: []}]}\n",
		"unknown effect":  "network: {unlisted: maybe}\n",
		"wildcard of all": "network: {unlisted: deny, hosts: [{host: '*', rules: [{do: allow}]}]}\n",
		"public suffix":   "network: {unlisted: deny, hosts: [{host: '*.com', rules: [{do: allow}]}]}\n",
		"no YAML":         "network: {{{\n",
		"unknown level":   "level: loose\n",
		"two documents":   "network: {unlisted: deny}\n---\npolicy: v1\nname: two\nnetwork: {unlisted: allow}\n",
		"repeated key":    "network: {unlisted: deny}\nnetwork: {unlisted: allow}\n",
	} {
		sb, err := a.client.Create(t.Context(), crannog.Policy("policy: v1\nname: task\n"+withJailLevel(document)))
		if err == nil {
			t.Errorf("%s: a sandbox was created", name)
			_ = sb.Kill(noContext())
		}
	}
	if n := countEngineProcesses(t, a.state); n != before {
		t.Errorf("got %d engine processes, want %d as before", n, before)
	}
	// An invalid change leaves the old policy in force.
	b := a.newSandbox(t, "network: {unlisted: deny, hosts: [{host: api.n20b.test, rules: [{methods: [GET], do: allow}]}]}\n")
	if err := b.SetAccess(t.Context(), accessOf("network: {unlisted: allow, hosts: [{host: '*'}]}\n")); err == nil {
		t.Error("an invalid change was accepted")
	}
	b.requireLines(b.python("print(status(get('api.n20b.test')), status(get('api.n20b.test', method='POST')), reach('evil.n20b.test', 443))"), "200 403 no-name")
	if n := countEngineProcesses(t, a.state); n == before {
		t.Error("control: a started sandbox has no engine process")
	}
	if c := b.Info().Effective.Checks; len(c) < 4 {
		t.Errorf("too few checks from inside: %+v", c)
	}
	for _, c := range b.Info().Effective.Checks {
		if !c.Holds {
			t.Errorf("the check failed: %s", c.Check)
		}
	}
}
