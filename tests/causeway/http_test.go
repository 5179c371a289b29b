package causeway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// serveUpgrade answers WebSocket requests like a careless or hostile server.
func serveUpgrade(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/ws/ignored":
		_, _ = io.WriteString(w, "no upgrade here")
	case "/ws/echo":
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "+websocketAccept(r.Header.Get("Sec-WebSocket-Key"))+"\r\n\r\n")
		_, _ = io.Copy(conn, buf)
	default:
		_, _ = io.WriteString(w, "closed thing")
	}
}

func TestN14WebSocketConfusion(t *testing.T) {
	need(t)
	t.Parallel()
	n14WebSocketConfusion(t, sharedEnvironment(t))
}

func n14WebSocketConfusion(t *testing.T, a *environment) {
	up := a.web(t, 443, serveUpgrade, "api.n14.test")
	b := a.newSandbox(t, `
level: light
network:
  unlisted: deny
  hosts:
    - {host: api.n14.test, websocket: allow, rules: [{methods: [GET, POST], paths: [/ws/*], do: allow}]}
`)
	b.requireLines(b.python(`
up = 'GET %s HTTP/1.1\r\nHost: api.n14.test\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n'
inner = 'GET /closed HTTP/1.1\r\nHost: api.n14.test\r\n\r\n'
a = say('api.n14.test', up % ('/ws/ignored', 'websocket') + inner.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'), idle=10)
print(a.count('HTTP/1.1 '), 'closed thing' in a)
a = say('api.n14.test', up % ('/ws/echo', 'h2c') + inner)
print('101' in a, 'closed thing' in a)
a = say('api.n14.test', up % ('/ws/echo', 'websocket, h2c') + inner)
print('101' in a, 'closed thing' in a)
a = say('api.n14.test', up.replace('GET', 'POST') % ('/ws/echo', 'websocket') + inner)
print('101' in a, 'closed thing' in a)
c = tls('api.n14.test')
print(first(raw(c, up % ('/ws/echo', 'websocket'))))
print(raw(c, b'\x81\x85mask' + bytes(x ^ y for x, y in zip(b'hello', b'maskm'))).encode('latin-1')[-5:] == bytes(x ^ y for x, y in zip(b'hello', b'maskm')))
`), "2 False", "False False", "False False", "False False", "HTTP/1.1 101 Switching Protocols", "True")
	for _, r := range up.seen() {
		if r.Path == "/closed" {
			t.Errorf("a request hidden behind the upgrade passed: %+v", r)
		}
	}
	b.awaitFlow("the second request", func(r api.FlowRecord) bool { return r.Path == "/closed" && r.Status == 403 && r.Effect == "deny" })
}

func TestN15Smuggling(t *testing.T) {
	need(t)
	t.Parallel()
	n15Smuggling(t, sharedEnvironment(t))
}

func n15Smuggling(t *testing.T, a *environment) {
	up := a.web(t, 443, nil, "api.n15.test", "other.n15.test")
	b := a.newSandbox(t, "level: light\nnetwork: {unlisted: deny, hosts: [{host: api.n15.test, rules: [{paths: ['/**'], do: allow}]}]}\n")
	cases := map[string]string{
		"two hosts":         "GET /bad HTTP/1.1\r\nHost: api.n15.test\r\nHost: evil.n15.test\r\n\r\n",
		"absolute form":     "GET https://evil.n15.test/bad HTTP/1.1\r\nHost: api.n15.test\r\n\r\n",
		"other scheme":      "GET http://api.n15.test/bad HTTP/1.1\r\nHost: api.n15.test\r\n\r\n",
		"NUL":               "GET /bad HTTP/1.1\r\nHost: api.n15.test\r\nX: a\x00b\r\n\r\n",
		"preface":           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"inner CONNECT":     "CONNECT evil.n15.test:443 HTTP/1.1\r\nHost: api.n15.test\r\n\r\n",
		"TRACE":             "TRACE /bad HTTP/1.1\r\nHost: api.n15.test\r\n\r\n",
		"options star":      "OPTIONS * HTTP/1.1\r\nHost: api.n15.test\r\n\r\n",
		"lower-case method": "delete /bad HTTP/1.1\r\nHost: api.n15.test\r\n\r\n",
		"space before :":    "GET /bad HTTP/1.1\r\nHost: api.n15.test\r\nContent-Length : 5\r\n\r\n",
		"two lengths":       "POST /bad HTTP/1.1\r\nHost: api.n15.test\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
		"signed length":     "POST /bad HTTP/1.1\r\nHost: api.n15.test\r\nContent-Length: +4\r\n\r\nabcd",
		"unknown encoding":  "POST /bad HTTP/1.1\r\nHost: api.n15.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"no host":           "GET /bad HTTP/1.1\r\n\r\n",
		"HTTP/0.9":          "GET /bad\r\n\r\n",
		"bare CR":           "GET /bad HTTP/1.1\rHost: api.n15.test\r\n\r\n",
	}
	var names, texts []string
	for n, text := range cases {
		names, texts = append(names, n), append(texts, text)
	}
	// All at the same time, because the gateway waits for the rest of an incomplete request.
	got := b.python(fmt.Sprintf(`
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(len(cases := %s)) as pool:
    for answer in pool.map(lambda x: status(say('api.n15.test', x)), cases): print(answer)
`, mustJSON(t, texts)))
	for i, line := range got {
		if !strings.HasPrefix(line, "4") && line != "501" {
			t.Errorf("the request with %s: got %s, want it refused", names[i], line)
		}
	}
	if len(got) != len(cases) {
		t.Errorf("got %d answers, want %d", len(got), len(cases))
	}
	// Two parsers could read these bytes as one or as two requests. The gateway parses them once
	// and forwards only its own reading.
	b.python(`
print(status(say('api.n15.test', 'POST /both HTTP/1.1\r\nHost: api.n15.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.n15.test\r\n\r\n')))
print(status(say('api.n15.test', 'POST /obs HTTP/1.1\r\nHost: api.n15.test\r\nTransfer-Encoding:\x0bchunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.n15.test\r\n\r\n')))
`)
	b.requireLines(b.python(`
print(status(get('api.n15.test', 'https://api.n15.test/fine', name='evil.n15.test'))) # the host of the target counts and is forwarded
print(status(get('api.n15.test', '/fine?q=1')))
print(say('api.n15.test', 'POST /one HTTP/1.1\r\nHost: api.n15.test\r\nContent-Length: 3\r\n\r\nabcGET /two HTTP/1.1\r\nHost: api.n15.test\r\nConnection: close\r\n\r\n', idle=10).count('HTTP/1.1 200'))
print(status(get('api.n15.test', '/hop', extra='Connection: X-Drop, close\r\nX-Drop: 1\r\nX-Keep: 1\r\nProxy-Authorization: x\r\nTE: trailers\r\n')))
`), "200", "200", "2", "200")
	for _, r := range up.seen() {
		if r.Path == "/bad" || r.Path == "/smuggled" || r.Host != "api.n15.test" {
			t.Errorf("the fake internet got %+v", r)
		}
		if r.Path == "/hop" && (r.Header.Get("X-Drop") != "" || r.Header.Get("Proxy-Authorization") != "" || r.Header.Get("X-Keep") == "") {
			t.Errorf("hop-by-hop headers were forwarded: %v", r.Header)
		}
	}
	// P22: the fake internet saw exactly the requests with entries.
	allowed := func() (list []string) {
		for _, r := range b.records("http") {
			if r.Effect == "allow" {
				list = append(list, r.Method+" "+r.Path)
			}
		}
		return list
	}
	hosttest.Eventually(t, "as many entries as requests", func() bool { return len(allowed()) == len(up.seen()) })
	for i, r := range up.seen() {
		if allowed()[i] != r.Method+" "+r.Path {
			t.Errorf("got the entry %s, want %s %s, which the fake internet got", allowed()[i], r.Method, r.Path)
		}
	}
	if n := len(b.records("http", "tcp")); n < len(cases)+7 {
		t.Errorf("got %d entries, want at least %d", n, len(cases)+7)
	}
}

// frames are Python functions that speak HTTP/2 frame by frame.
const frames = `
def frame(kind, flags, stream, data=b''): return struct.pack('>I', len(data))[1:] + bytes([kind, flags]) + struct.pack('>I', stream) + data
def field(name, value):
    n, v = name.encode(), value.encode()
    return b'\x10' + bytes([len(n)]) + n + bytes([len(v)]) + v
def headers(stream, fields, end=True): return frame(1, 4 | (1 if end else 0), stream, b''.join(field(*f) for f in fields))
def request(authority, path='/', method='GET', scheme='https', more=()):
    return [(':method', method), (':scheme', scheme), (':authority', authority), (':path', path)] + list(more)
def exchange(c, data, streams):
    """Send frames, and return how each stream ended and its body."""
    c.sendall(data)
    c.settimeout(5)
    out, ended, buf = {s: b'' for s in streams}, {}, b''
    while len(ended) < len(streams):
        try: part = c.recv(65536)
        except OSError: break
        if not part: break
        buf += part
        while len(buf) >= 9:
            n = int.from_bytes(buf[:3], 'big')
            if len(buf) < 9 + n: break
            kind, flags, stream, data = buf[3], buf[4], int.from_bytes(buf[5:9], 'big'), buf[9:9 + n]
            buf = buf[9 + n:]
            if kind == 4 and not flags & 1: c.sendall(frame(4, 1, 0))
            if kind == 0 and stream in out: out[stream] += data
            if kind in (0, 1) and flags & 1 and stream in out: ended[stream] = 'end'
            if kind == 3 and stream in out: ended[stream] = 'reset'
            if kind == 7: ended = {s: ended.get(s, 'goaway') for s in streams}
    return {s: (ended.get(s, 'open'), out[s].decode('latin-1')) for s in streams}
def connect_h2(host):
    c = tls(host, alpn=['h2'])
    c.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(4, 0, 0))
    return c
def summary(r): return r[0] + ' ' + ('hello' if r[1].startswith('hello') else rule(r[1]))
`

func TestN24HTTP2(t *testing.T) {
	need(t)
	t.Parallel()
	n24HTTP2(t, sharedEnvironment(t))
}

func n24HTTP2(t *testing.T, a *environment) {
	a.storeSecret(t, "N24", canary)
	answer := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/trailer" {
			_, _ = io.WriteString(w, "hello from "+r.Host)
			return
		}
		w.Header().Set("Trailer", "X-Said")
		_, _ = io.WriteString(w, "body")
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("X-Said", "it was "+r.Header.Get("Authorization"))
		w.Header().Set(http.TrailerPrefix+"X-Unsaid", "it was "+r.Header.Get("Authorization"))
	}
	up := a.web(t, 443, answer, "api.n24.test", "other.n24.test") // one certificate: a client may use one connection for both
	b := a.newSandbox(t, strings.NewReplacer("n7", "n24", "N7", "N24").Replace(frontedPolicy))
	b.requireLines(b.python(frames+`
c = connect_h2('api.n24.test')
r = exchange(c, headers(1, request('api.n24.test')) + headers(3, request('other.n24.test')) + headers(5, request('api.n24.test', '/x')), [1, 3, 5])
print(summary(r[1]), '|', summary(r[3]), '|', summary(r[5]))
r = exchange(c, headers(7, [(':method', 'CONNECT'), (':authority', 'evil.n24.test:443')], end=False), [7])
print(r[7][0] != 'open' or 'hello' in r[7][1], 'hello' in r[7][1])
c = connect_h2('api.n24.test')
r = exchange(c, headers(1, request('api.n24.test', more=[('host', 'other.n24.test')])), [1])
print(summary(r[1]))
c = connect_h2('api.n24.test')
r = exchange(c, headers(1, [(':method', 'CONNECT'), (':protocol', 'websocket'), (':scheme', 'https'), (':authority', 'api.n24.test'), (':path', '/')], end=False), [1])
print('hello' in r[1][1])
c = connect_h2('api.n24.test')
r = exchange(c, headers(1, request('api.n24.test', '/a/../b')) + headers(3, request('api.n24.test:8443')), [1, 3])
print(summary(r[1]), '|', summary(r[3]))
`), "end hello | end identity.host | end hello", "True False", "end identity.host", "False", "end floor.path | end identity.port")
	for _, r := range up.seen() {
		if r.Host != "api.n24.test" || r.auth() != "Bearer "+canary {
			t.Errorf("the fake internet got %+v", r)
		}
	}
	// Checked inside, because a command's output would be redacted once more on its way out.
	for _, version := range []string{"--http2", "--http1.1"} {
		b.must("curl -sS -m 300 -D /tmp/head -o /tmp/body " + version + " https://api.n24.test/trailer")
		b.requireLines(b.python(canaryParts+`
text = open('/tmp/head').read() + open('/tmp/body').read()
print(leaks(text), 'body' in text, text.count('redacted' + ':N24'))
`), "False True 2")
	}
	if n := len(up.seen()); n != 4 {
		t.Errorf("the fake internet got %d requests", n)
	}
}
