package causeway_test

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// canaryParts defines the canary in two parts, so that a program that searches for it does not
// contain it itself. leaks searches a text in the encodings of serveReflection.
const canaryParts = `
import base64
K = 'sk-canary-4f9a' + '8b7c6d5e4f3a2b1c'
def leaks(text):
    b = text if isinstance(text, bytes) else text.encode('latin-1')
    k = K.encode()
    forms = [k, k.hex().encode(), k.hex().upper().encode(), k[::-1]]
    for i in range(3):
        e = base64.b64encode(b'x' * i + k)
        forms.append(e[4 if i else 0:-4])
    return any(f in b for f in forms)
`

// searchProcesses searches programs' arguments and environments, and files.
const searchProcesses = canaryParts + `
import glob, stat
def others(): return (d for d in glob.glob('/proc/[0-9]*') if d != '/proc/%d' % os.getpid())
def started(k):
    hits = set()
    for d in others():
        for f in ('environ', 'cmdline'):
            try:
                if k in open(d + '/' + f, 'rb').read(): hits.add(f)
            except OSError: pass
    return hits
def filed(k, *more):
    for top in ('/etc', '/home', '/root', '/tmp', '/var', '/run', '/workspace', '/opt', '/dev/shm') + more:
        for base, _, files in os.walk(top):
            for f in files:
                p = os.path.join(base, f)
                try:
                    if stat.S_ISREG(os.lstat(p).st_mode) and os.path.getsize(p) < 8 << 20 and k in open(p, 'rb').read(): return {'file'}
                except OSError: pass
    return set()
`

// searchEverywhere searches everything that root sees inside: environments, command lines and
// memory of programs, and files.
const searchEverywhere = searchProcesses + `
def held(k):
    hits = set()
    for d in others():
        try:
            mem = open(d + '/mem', 'rb', 0)
            for line in open(d + '/maps'):
                r, mode = line.split()[:2]
                lo, hi = (int(x, 16) for x in r.split('-'))
                if 'r' not in mode or hi - lo > 64 << 20: continue
                try:
                    mem.seek(lo)
                    if k in mem.read(hi - lo): hits.add('memory')
                except (OSError, ValueError, OverflowError): pass
        except OSError: pass
    return hits
def found(k): return sorted(started(k) | held(k) | filed(k))
`

// serveReflection returns a request's secret in many encodings, like careless and hostile servers.
func serveReflection(w http.ResponseWriter, r *http.Request) {
	value := r.Header.Get("Authorization")
	flush := func() { _ = http.NewResponseController(w).Flush() }
	switch r.URL.Path {
	case "/raw":
		_, _ = io.WriteString(w, "you sent "+value)
	case "/base64/0", "/base64/1", "/base64/2":
		_, _ = io.WriteString(w, base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", int(r.URL.Path[8]-'0'))+value)))
	case "/hex":
		_, _ = io.WriteString(w, hex.EncodeToString([]byte(value)))
	case "/gzip":
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, "you sent "+value)
		z.Close()
	case "/slow":
		for _, c := range []byte("you sent " + value + "\n") {
			_, _ = w.Write([]byte{c})
			flush()
		}
	case "/header":
		w.Header().Set("X-Sent", value)
		w.Header().Set("Set-Cookie", "session="+value)
	case "/error":
		http.Error(w, "bad key "+value, http.StatusUnauthorized)
	case "/location":
		w.Header().Set("Location", "/?key="+value)
		w.WriteHeader(http.StatusFound)
	case "/br":
		w.Header().Set("Content-Encoding", "br")
		_, _ = io.WriteString(w, value)
	default:
		_, _ = io.WriteString(w, "hello from "+r.Host)
	}
}

// P20: a secret is never inside, and no response brings it there.
func TestS1SecretIsNotInside(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	up := a.web(t, 443, nil, "api.s1.test")
	a.storeSecret(t, "S1", canary)
	b := a.newSandbox(t, boundPolicy("S1", "api.s1.test"))
	b.must("curl -sS -m 300 https://api.s1.test/")
	if len(up.seen()) != 1 || up.seen()[0].auth() != "Bearer "+canary {
		t.Fatalf("it is not in use: %+v", up.seen())
	}
	search := searchEverywhere + `
import subprocess
plant = 'planted-7f3e' + '9d2c'
child = subprocess.Popen(['sh', '-c', 'read x; echo; read x', plant], env={'PLANTED': plant}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdin.write(b'\n')
child.stdin.flush()
child.stdout.readline() # the child has started
open('/tmp/plant', 'w').write(plant)
print(found(K.encode()))
print(found(plant.encode()))
child.kill()
print(os.environ.get('S1'))
`
	got := b.pythonAs("root", search)
	if got[0] != "[]" || got[2] != "sealed-by-crannog-S1" {
		t.Errorf("the secret is inside: %q", got)
	}
	if !contains(got[1], "environ", "cmdline", "memory", "file") {
		t.Errorf("control: the planted text is not found: %q", got)
	}
}

// boundPolicy returns a policy with one host and one secret for it.
func boundPolicy(secret, host string) string {
	return fmt.Sprintf(`
level: light
network: {unlisted: deny, writes: rule, hosts: [{host: %s, rules: [{paths: ["/**"], do: allow}]}]}
secrets: {bind: [{name: %s, host: %s, header: Authorization, format: "Bearer {}"}]}
`, host, secret, host)
}

// P20: a secret that a server returns is redacted, in each encoding and in command output.
func TestS2AndS3ReflectedSecretIsRedacted(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	up := a.web(t, 443, serveReflection, "api.s2.test")
	a.storeSecret(t, "S2", canary)
	b := a.newSandbox(t, boundPolicy("S2", "api.s2.test"))
	got := b.python(canaryParts + `
print(leaks('x' + K), leaks(base64.b64encode(b'Bearer ' + K.encode())), leaks('nothing'))
for p in ('/raw', '/base64/0', '/base64/1', '/base64/2', '/hex', '/gzip', '/slow', '/header', '/error', '/location'):
    for h in ('', 'Accept-Encoding: gzip, br\r\n'):
        a = get('api.s2.test', p, extra=h)
        print(p, status(a), leaks(a))
a = get('api.s2.test', '/br', extra='Accept-Encoding: br\r\n')
print(status(a), leaks(a), 'you' in a)
`)
	b.requireLines(got[:1], "True True False")
	for _, line := range got[1 : len(got)-1] {
		if !strings.HasSuffix(line, " False") || contains(line, "none") {
			t.Errorf("a reflected secret: got %s, want it redacted", line)
		}
	}
	b.requireLines(got[len(got)-1:], "502 False False")
	out, _ := b.sh("for p in raw gzip slow; do curl -sS -m 300 --compressed https://api.s2.test/$p; done; curl -sS -m 300 -D - -o /dev/null https://api.s2.test/header")
	// Redaction does not hold back a prefix that any text may have: of text that arrives byte by
	// byte, the first five bytes pass.
	redacted := strings.Count(out, "[redacted:S2]") + strings.Count(out, strings.Repeat("*", len(canary)-5))
	if redacted < 5 || contains(out, canary[:6]) {
		t.Errorf("the output is not redacted: %s", out)
	}
	for _, r := range up.seen() {
		if r.auth() != "Bearer "+canary {
			t.Errorf("%s carries %q", r.Path, r.auth())
		}
	}
	// The command's own output is redacted too, whatever produced it.
	if out, _ := b.sh("printf 'sk-canary-4f9a'; sleep 0.1; echo 8b7c6d5e4f3a2b1c"); contains(out, canary) || !contains(out, "redacted") {
		t.Errorf("the output of a command: %s", out)
	}
}

// P20: a secret is not stored in plain text: in no log, recording, entry or approval request.
func TestS4SecretIsNotStored(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	a.web(t, 443, serveReflection, "api.s4.test")
	a.storeSecret(t, "S4", canary)
	b := a.newSandbox(t, strings.Replace(boundPolicy("S4", "api.s4.test"), "hosts: [", "hosts: [{host: ask.s4.test, approval: {timeout: 1h}, rules: [{methods: [GET], do: ask}]}, ", 1))
	// Errors of the gateway and of the server, a host that does not answer, and an approval
	// request.
	b.python(canaryParts + `
for p in ('/raw', '/error', '/br', '/location', '/%2e%2e/', '/header'): get('api.s4.test', p)
get('api.s4.test', '/' + K)
get('api.s4.test', name=K + '.test')
handshake('api.s4.test', sni=K)
query(K + '.s4.test', 1)
connect(K + '.test:443')
reach(K, 443)
`)
	// The output of commands is recorded, with a replacement for the value.
	b.sh("echo 'marked-s4'; printf sk-canary-4f9a; echo 8b7c6d5e4f3a2b1c; curl -sS -m 300 https://api.s4.test/raw")
	if recordings := filepath.Join(a.state, "recordings"); len(hosttest.Holding(t, recordings, "marked-s4")) == 0 || len(hosttest.Holding(t, recordings, "[redacted:S4]")) == 0 {
		t.Error("control: the command's output is in no recording")
	}
	files := func(needle string) []string { return hosttest.Holding(t, a.state, needle) }
	if got := files(canary); len(got) > 0 {
		t.Errorf("the secret is in %v", got)
	}
	for _, form := range []string{base64.StdEncoding.EncodeToString([]byte(canary)), hex.EncodeToString([]byte(canary))} {
		if got := files(form); len(got) > 0 {
			t.Errorf("the secret is in %v", got)
		}
	}
	if got := files(b.ID()); len(got) == 0 {
		t.Error("control: no file names the sandbox")
	}
	for _, r := range b.records() {
		if contains(fmt.Sprintf("%+v", r), canary) {
			t.Errorf("the entry shows the secret: %+v", r)
		}
	}
	list, err := a.client.Approvals(t.Context(), crannog.ApprovalOptions{States: []string{"all"}})
	if err != nil || contains(fmt.Sprintf("%+v", list), canary) {
		t.Errorf("an approval request shows the secret, or %v", err)
	}
}

func TestS5OnlyBoundHeaderGetsSecret(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	up := a.web(t, 443, nil, "api.s5.test")
	a.storeSecret(t, "S5", canary)
	b := a.newSandbox(t, boundPolicy("S5", "api.s5.test"))
	b.must(`curl -sS -m 300 -H "X-Other: $S5" -H "Cookie: key=$S5" -A "$S5" -d "key=$S5" "https://api.s5.test/x?key=$S5"`)
	if len(up.seen()) != 1 {
		t.Fatal("nothing was sent")
	}
	r := up.seen()[0]
	all := fmt.Sprint(r.Query, r.Body, r.Header.Get("X-Other"), r.Header.Get("Cookie"), r.Header.Get("User-Agent"))
	if contains(all, canary) || strings.Count(all, "sealed-by-crannog-S5") != 5 || r.auth() != "Bearer "+canary {
		t.Errorf("the request carried %s", all)
	}
	// The gateway replaces a value that the program sets itself.
	b.must(`curl -sS -m 300 -H "Authorization: Bearer mine" https://api.s5.test/y`)
	if got := up.seen()[1].Header.Values("Authorization"); len(got) != 1 || got[0] != "Bearer "+canary {
		t.Errorf("the bound header: got %q", got)
	}
}

func TestS6Rotation(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	const second = "sk-second-0a1b2c3d4e5f60718293"
	var old, fresh atomic.Int64
	a.web(t, 443, func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer " + canary:
			old.Add(1)
		case "Bearer " + second:
			fresh.Add(1)
		}
		_, _ = io.WriteString(w, "was "+canary+" is "+second+".")
	}, "api.s6.test")
	a.storeSecret(t, "S6", canary)
	b := a.newSandbox(t, boundPolicy("S6", "api.s6.test"))
	done := make(chan []string, 1)
	go func() {
		done <- b.python(canaryParts + `
bad, n = [], 0
while not (os.path.exists('/tmp/enough') and n > 100) and n < 5000:
    a = get('api.s6.test')
    if status(a) != '200' or leaks(a): bad.append(status(a))
    n += 1
print(len(bad), bad[:5])
a = get('api.s6.test')
print('sk-second' in a, leaks(a), 'redacted' in a or '***' in a)
`)
	}()
	hosttest.Eventually(t, "the old value is in use", func() bool { return old.Load() > 20 })
	if _, err := a.client.RotateSecret(t.Context(), "S6", api.RotateSecret{Value: second}); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the new value is in use", func() bool { return fresh.Load() > 20 })
	after := old.Load()
	hosttest.Eventually(t, "the old value is no longer used", func() bool { return fresh.Load() > 60 })
	if n := old.Load() - after; n > 0 {
		t.Errorf("got %d requests with the old value after the first ones with the new", n)
	}
	b.must("touch /tmp/enough")
	b.requireLines(<-done, "0 []", "False False True")
}

func TestS7RejectsUnsafeBindings(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	a.storeSecret(t, "S7", canary)
	for name, c := range map[string][2]string{
		"plain":    {"{host: api.s7.test, ports: [80], rules: [{do: allow}]}", "{name: S7, host: api.s7.test, port: 80, header: Authorization}"},
		"tunnel":   {"{host: api.s7.test, tunnel: true, rules: [{do: allow}]}", "{name: S7, host: api.s7.test, header: Authorization}"},
		"wildcard": {"{host: '*.s7.test', rules: [{do: allow}]}", "{name: S7, host: '*.s7.test', header: Authorization}"},
		"twice":    {"{host: api.s7.test, rules: [{do: allow}]}", "{name: S7, host: api.s7.test, header: Authorization}, {name: S7B, host: api.s7.test, header: authorization}"},
		"framing":  {"{host: api.s7.test, rules: [{do: allow}]}", "{name: S7, host: api.s7.test, header: Host}"},
		"echo":     {"{host: httpbin.org, rules: [{do: allow}]}", "{name: S7, host: httpbin.org, header: Authorization}"},
		"fine":     {"{host: api.s7.test, rules: [{do: allow}]}", "{name: S7, host: api.s7.test, header: Authorization}"},
	} {
		sb, err := a.client.Create(t.Context(), crannog.Policy("policy: v1\nname: s7\n"+withJailLevel("level: minimal\nnetwork: {unlisted: deny, hosts: ["+c[0]+"]}\nsecrets: {bind: ["+c[1]+"]}\n")))
		if (err == nil) != (name == "fine") {
			t.Errorf("create a sandbox with the policy %q: got %v", name, err)
		}
		if err == nil {
			if err := sb.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestS8LimitedBindingsExpire(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	up := a.web(t, 443, nil, "uses.s8.test", "hour.s8.test", "second.s8.test", "asked.s8.test")
	a.storeSecret(t, "S8", canary)
	b := a.newSandbox(t, `
level: light
network:
  unlisted: deny
  hosts:
    - {host: uses.s8.test, rules: [{methods: [GET], do: allow}]}
    - {host: hour.s8.test, rules: [{methods: [GET], do: allow}]}
    - {host: second.s8.test, rules: [{methods: [GET], do: allow}]}
    - {host: asked.s8.test, rules: [{methods: [GET], do: allow}]}
secrets:
  bind:
    - {name: S8, host: uses.s8.test, header: Authorization, max_uses: 2}
    - {name: S8, host: hour.s8.test, header: Authorization, ttl: 1h}
    - {name: S8, host: second.s8.test, header: Authorization, ttl: 1s}
    - {name: S8, host: asked.s8.test, header: Authorization, approve: true}
`)
	b.requireLines(b.python("for i in range(4): print(status(get('uses.s8.test')))"), "200", "200", "403", "403")
	// The lifetime of one second may be over before the first try.
	hosttest.Eventually(t, "the lifetime of one second is over", func() bool { return b.line("print(status(get('second.s8.test')))") == "403" })
	if got := b.line("print(status(get('hour.s8.test')))"); got != "200" {
		t.Errorf("a binding with time left: got %s, want 200", got)
	}
	p := newApprovers(t, a)
	p.answer(func(q api.Approval) bool { return q.Kind == "secret.use" || q.Kind == "net.request" })
	if got := b.line("print(status(get('asked.s8.test')))"); got != "200" {
		t.Errorf("an approved use: got %s, want 200", got)
	}
	p.answer(func(api.Approval) bool { return false })
	if got := b.line("print(status(get('asked.s8.test')))"); got != "403" {
		t.Errorf("a denied use: got %s, want 403", got)
	}
	if n := len(p.asked()); n != 2 {
		t.Errorf("got %d approval requests, want 2", n)
	}
	for _, r := range up.seen() {
		if r.auth() != canary {
			t.Errorf("a request without the secret: %+v", r)
		}
	}
}

func TestS10StreamsAreNotHeldBack(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	// The server pauses until its first output was seen inside, or until that has evidently failed.
	seen := make(chan struct{})
	var late atomic.Bool
	a.web(t, 443, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/seen" {
			close(seen)
			return
		}
		for i, part := range []string{"data: ends in s", "\ndata: " + canary[:11], canary[11:] + "\n"} {
			_, _ = io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
			pause := hosttest.Patience(hosttest.Hang)
			wait := seen
			if i > 0 {
				pause, wait = 100*time.Millisecond, nil
			}
			select {
			case <-wait:
			case <-time.After(pause):
				late.Store(late.Load() || i == 0)
			case <-r.Context().Done():
			}
		}
	}, "api.s10.test")
	a.storeSecret(t, "S10", canary)
	b := a.newSandbox(t, boundPolicy("S10", "api.s10.test"))
	got := b.python(canaryParts + `
c = tls('api.s10.test')
c.sendall(b'GET / HTTP/1.1\r\nHost: api.s10.test\r\nConnection: close\r\n\r\n')
text, at = b'', None
while True:
    part = c.recv(4096)
    if not part: break
    text += part
    if at is None and b'ends in s' in text: at = status(get('api.s10.test', '/seen'))
print(at, leaks(text), K[:6].encode() in text, b'redacted' in text or b'***' in text)
`)
	if late.Load() {
		t.Error("output before the server's pause was held back")
	}
	b.requireLines(got, "200 False False True")
}
