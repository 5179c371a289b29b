package causeway_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func accessOf(document string) api.Access {
	return api.Access{Policy: "policy: v1\nname: task\n" + withJailLevel(document)}
}

// serveStream sends a line each tenth of a second.
func serveStream(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/ws/echo" {
		serveUpgrade(w, r)
		return
	}
	if r.URL.Path != "/stream" {
		_, _ = io.WriteString(w, "hello from "+r.Host)
		return
	}
	for range 60_000 {
		if _, err := io.WriteString(w, "line\n"); err != nil || r.Context().Err() != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		time.Sleep(100 * time.Millisecond)
	}
}

func TestN21PolicyTightened(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	a.web(t, 443, serveStream, "api.n21.test")
	a.web(t, 443, serveStream, "pass.n21.test")
	a.web(t, 443, serveStream, "kept.n21.test")
	tunnel := startEcho(t, a, 5432, "db.n21.test")
	const rules = `
level: minimal
network:
  unlisted: deny
  hosts:
    - {host: kept.n21.test, rules: [{methods: [GET], do: allow}]}
`
	b := a.newSandbox(t, rules+`
    - {host: api.n21.test, websocket: allow, rules: [{methods: [GET], do: allow}]}
    - {host: pass.n21.test, rules: [{do: allow}]}
    - {host: db.n21.test, ports: [5432], tunnel: true, rules: [{do: allow}]}
`)
	done := make(chan []string, 1)
	go func() {
		done <- b.python(`
import threading
up = 'GET /ws/echo HTTP/1.1\r\nHost: api.n21.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n'
def ask(host, path='/stream', **k):
    c = tls(host, **k)
    c.sendall(('GET %s HTTP/1.1\r\nHost: %s\r\n\r\n' % (path, host)).encode())
    return c
flows = {'request': ask('api.n21.test'), 'splice': ask('pass.n21.test', ca='/tmp/world.pem'), 'kept': ask('kept.n21.test')}
flows['socket'] = tls('api.n21.test')
flows['socket'].sendall(up.encode())
flows['tunnel'] = socket.create_connection(('db.n21.test', 5432), 5)
flows['tunnel'].sendall(b'x')
s, answer = connect('api.n21.test:443')
flows['connected'] = tls('api.n21.test', via=s)
flows['connected'].sendall(b'GET /stream HTTP/1.1\r\nHost: api.n21.test\r\n\r\n')
flows['idle'] = tls('api.n21.test')
ends = {}
def watch(name, c):
    c.settimeout(300)
    try:
        while True:
            part = c.recv(4096)
            if not part: break
            if name == 'kept' and os.path.exists('/tmp/enough'): return
    except (socket.timeout, TimeoutError): return
    except OSError: pass
    ends[name] = time.time()
for name in ('request', 'splice', 'kept'): flows[name].recv(10)
for name in ('socket', 'tunnel', 'connected'): flows[name].recv(10)
threads = [threading.Thread(target=watch, args=f) for f in flows.items()]
for t in threads: t.start()
open('/tmp/ready', 'w').close()
for t in threads: t.join()
for name in sorted(flows): print(name, ends.get(name, 0))
`)
	}()
	hosttest.Eventually(t, "all flows are open", func() bool { _, code := b.sh("test -e /tmp/ready"); return code == 0 })
	if err := b.SetAccess(t.Context(), accessOf(rules)); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the tunnel ends", func() bool { return tunnel.open() == 0 })
	b.requireLines(b.python("print(reach('api.n21.test', 443), reach('db.n21.test', 5432), status(get('kept.n21.test')))"), "no-name no-name 200")
	b.must("touch /tmp/enough")
	for _, line := range <-done {
		var name string
		var at float64
		if _, err := fmt.Sscan(line, &name, &at); err != nil {
			t.Fatalf("parse the line %q: %v", line, err)
		}
		// Each flow but the one named kept must have ended. They would last for more than an hour.
		if ended := at != 0; ended == (name == "kept") {
			t.Errorf("flow %s ended: got %t", name, ended)
		}
	}
}
