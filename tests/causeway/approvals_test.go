package causeway_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"unicode"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// askPolicy returns a policy in which writes to a host need an approval.
func askPolicy(host, more string) string {
	return fmt.Sprintf("level: light\nnetwork: {unlisted: deny, hosts: [{host: %s, rules: [{methods: [GET], do: allow}, {methods: [POST, PUT], do: ask}]}]}\n%s", host, more)
}

// send makes a request whose sender gives up before a person decides.
const send = `
def send(host, path='/x', body='one', extra='', method='POST', seconds=1.5 * SLOWNESS):
    try: c = tls(host)
    except OSError: return 'closed'
    try: c.sendall(('%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: text/plain\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s' % (method, path, host, extra, len(body), body)).encode('latin-1'))
    except OSError: pass
    c.settimeout(seconds)
    out = b''
    try:
        while True:
            part = c.recv(65536)
            if not part: break
            out += part
    except OSError: pass
    return status(out.decode('latin-1')) if out else 'waits'
`

// pending waits for the only open approval request of the sandbox.
func (b *testSandbox) pending() api.Approval {
	b.t.Helper()
	var found api.Approval
	hosttest.Eventually(b.t, "an approval request", func() bool {
		list, err := b.environment.client.Approvals(b.t.Context(), crannog.ApprovalOptions{Sandbox: b.ID()})
		if err != nil {
			b.t.Fatal(err)
		}
		if len(list) > 0 {
			found = list[0]
		}
		return len(list) > 0
	})
	return found
}

// P21: an approval is valid once, for exactly the bytes that were asked about.
func TestA1ApprovalCoversOnlySameRequest(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	up := a.web(t, 443, nil, "api.a1.test")
	b := a.newSandbox(t, askPolicy("api.a1.test", ""))
	if got := b.line(send + "print(send('api.a1.test'))"); got != "waits" {
		t.Fatalf("a request without an approval: got %s, want waits", got)
	}
	q := b.pending()
	b.awaitGivenUp(1)
	if _, err := a.client.Approve(t.Context(), q.ID, "", false); err != nil {
		t.Fatal(err)
	}
	b.requireLines(b.python(send+`
from concurrent.futures import ThreadPoolExecutor
tries = [dict(body='two'), dict(body='one '), dict(path='/y'), dict(path='/x?q=1'), dict(method='PUT'), dict(extra='Accept: text/html\r\n'), dict(extra='X-HTTP-Method-Override: PUT\r\n'), dict(extra='Content-Encoding: gzip\r\n')]
with ThreadPoolExecutor(8) as pool: print(len(tries), '200' in pool.map(lambda k: send('api.a1.test', **k), tries))
`), "8 False")
	if len(up.seen()) > 0 {
		t.Fatalf("the fake internet got %+v", up.seen())
	}
	if state, err := a.client.Approval(t.Context(), q.ID); err != nil || state.State != "approved" {
		t.Errorf("the state of the approval is %s, %v", state.State, err)
	}
	b.requireLines(b.python(send+"print(send('api.a1.test', seconds=300), send('api.a1.test') == '200')"), "200 False")
	if s := up.seen(); len(s) != 1 || s[0].Body != "one" || s[0].Path != "/x" {
		t.Errorf("the fake internet got %+v", s)
	}
}

// awaitGivenUp waits until the gateway has noticed that the clients of so many held requests have
// left. Otherwise such a request could still take the grant.
func (b *testSandbox) awaitGivenUp(n int) {
	b.t.Helper()
	hosttest.Eventually(b.t, "requests that were given up", func() bool {
		left := 0
		for _, r := range b.records() {
			if r.Kind == "http" && r.Path == "/x" {
				left++
			}
		}
		return left >= n
	})
}

// P21: an approval ends when the secret that the request carries is rotated.
func TestA1RotationEndsApproval(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	up := a.web(t, 443, nil, "api.a1r.test")
	a.storeSecret(t, "A1R", canary)
	b := a.newSandbox(t, askPolicy("api.a1r.test", "secrets: {bind: [{name: A1R, host: api.a1r.test, header: Authorization}]}\n"))
	ask := send + "print(send('api.a1r.test'))"
	b.requireLines(b.python(ask), "waits")
	first := b.pending()
	b.awaitGivenUp(1)
	if _, err := a.client.Approve(t.Context(), first.ID, "", false); err != nil {
		t.Fatal(err)
	}
	if _, err := a.client.RotateSecret(t.Context(), "A1R", api.RotateSecret{Value: "sk-second-0a1b2c3d4e5f60718293"}); err != nil {
		t.Fatal(err)
	}
	b.requireLines(b.python(ask), "waits")
	second := b.pending()
	b.awaitGivenUp(2)
	if second.ID == first.ID || len(up.seen()) > 0 {
		t.Errorf("the approval request is the same after the rotation, or the fake internet got %+v", up.seen())
	}
	if _, err := a.client.Approve(t.Context(), second.ID, "", false); err != nil {
		t.Fatal(err)
	}
	b.requireLines(b.python(send+"print(send('api.a1r.test', seconds=300))"), "200")
}

// P21: one approval lets exactly one of a hundred equal requests pass.
func TestA2ApprovalIsSpentOnce(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	up := a.web(t, 443, nil, "api.a2.test")
	b := a.newSandbox(t, askPolicy("api.a2.test", ""))
	if got := b.line(send + "print(send('api.a2.test'))"); got != "waits" {
		t.Fatalf("a request without an approval: got %s, want waits", got)
	}
	q := b.pending()
	b.awaitGivenUp(1)
	if _, err := a.client.Approve(t.Context(), q.ID, "", false); err != nil {
		t.Fatal(err)
	}
	got := b.python(send + `
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(100) as pool: got = list(pool.map(lambda i: send('api.a2.test', seconds=300), range(100)))
print(got.count('200') <= 1) # none on a machine so slow that the client gave up
print(send('api.a2.test') != '200')
`)
	b.requireLines(got, "True", "True")
	if n := len(up.seen()); n != 1 {
		t.Errorf("the fake internet got %d requests", n)
	}
	state, err := a.client.Approval(t.Context(), q.ID)
	if err != nil || state.State != "spent" {
		t.Errorf("the state of the approval is %s, %v", state.State, err)
	}
	b.awaitFlow("the approval's ID", func(r api.FlowRecord) bool { return r.Approval == q.ID && r.Effect == "allow" && r.Status == 200 })
}

// serverEnvironment returns an environment whose product runs as a server.
func serverEnvironment(t testing.TB) (*environment, *servetest.Server, string) {
	t.Helper()
	w, err := newInternet()
	if err != nil {
		t.Fatal(err)
	}
	a := &environment{internet: w, state: hosttest.ShortDir(t)}
	if err := w.write(a.state); err != nil {
		t.Fatal(err)
	}
	path := program(t)
	s := servetest.Start(t, path, a.state)
	a.client = s.Client(t)
	t.Cleanup(func() {
		s.Kill()
		if err := awaitCauseway(a.state); err != nil {
			t.Error(err)
		}
	})
	return a, s, path
}

func TestA3SandboxCannotApproveItself(t *testing.T) {
	need(t)
	t.Parallel()
	a, s, _ := serverEnvironment(t)
	up := a.web(t, 443, nil, "api.a3.test")
	b := a.newSandbox(t, askPolicy("api.a3.test", ""))
	if got := b.line(send + "print(send('api.a3.test'))"); got != "waits" {
		t.Fatalf("a request without an approval: got %s, want waits", got)
	}
	q := b.pending()
	port := s.URL[strings.LastIndexByte(s.URL, ':')+1:]
	b.requireLines(b.pythonAs("root", fmt.Sprintf(`
print(sorted(set(reach(h, %s, 1) == 'open' for h in ('127.0.0.1', '10.199.0.1', '10.199.0.2', 'localhost', '169.254.169.254'))))
print(os.path.exists(%q), os.path.exists('/run/crannog.sock'))
print(status(connect('127.0.0.1:%s')[1]), status(connect('localhost:%s')[1]))
names = [k for k in os.environ if 'KEY' in k or 'TOKEN' in k or 'CRANNOG' in k]
print(names)
`, port, a.state, port, port)), "[False]", "False False", "403 403", "[]")
	b.awaitFlow("the attempt", func(r api.FlowRecord) bool { return r.Kind == "connect" && r.Host == "127.0.0.1" && r.Effect == "deny" })
	// The sandbox's own tokens do not work as keys, in any header.
	info := b.Info()
	for _, token := range []string{info.AccessToken, info.TrafficToken, ""} {
		for _, header := range []string{"X-API-Key", "X-Access-Token", "Authorization", "E2B-Traffic-Access-Token"} {
			for _, verb := range []string{"approve", "deny"} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/approvals/"+q.ID+"/"+verb, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set(header, strings.TrimSpace(map[string]string{"Authorization": "Bearer "}[header]+token))
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusUnauthorized {
					t.Errorf("%s with the header %s: got %d, want 401", verb, header, resp.StatusCode)
				}
			}
		}
	}
	if state, err := a.client.Approval(t.Context(), q.ID); err != nil || state.State != "pending" || len(state.Votes) != 0 || len(up.seen()) != 0 {
		t.Errorf("the approval request is %+v, %v, want pending without votes", state, err)
	}
	if _, err := a.client.Approve(t.Context(), q.ID, "", false); err != nil {
		t.Fatal(err)
	}
	if got := b.line(send + "print(send('api.a3.test', seconds=300))"); got != "200" {
		t.Errorf("after an approval with the API key: got %s, want 200", got)
	}
}

func TestA4PromptHasNoControlCharacters(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	a.web(t, 443, nil, "api.a4.test")
	b := a.newSandbox(t, askPolicy("api.a4.test", "git: {push: {unlisted: ask, delete: ask, force: ask}}\n"))
	b.python(send + `
send('api.a4.test', '/a%E2%80%AEb%1b%5b2Jc%0aapproved', 'x' * (1 << 20))
send('api.a4.test', '/x', extra='Accept: \x1b[31mred\r\nX-Note: \xe2\x80\xae\r\n')
send('api.a4.test', '/x?q=\xe2\x80\xae')
line = '0' * 40 + ' ' + '1' * 40 + ' refs/heads/x\x1b[2Jy\x07\xe2\x80\xaez\0report-status'
send('api.a4.test', '/acme/pay.git/git-receive-pack', '%04x%s0000PACK' % (len(line) + 4, line))
line = line.replace('\x1b[2Jy\x07', '-\xc2\x9b1m-')
send('api.a4.test', '/acme/pay.git/git-receive-pack', '%04x%s0000PACK' % (len(line) + 4, line))
send('api.a4.test', '/y', 'z' * (1 << 20))
`)
	list, err := a.client.Approvals(t.Context(), crannog.ApprovalOptions{States: []string{"all"}, Sandbox: b.ID()})
	if err != nil || len(list) < 2 {
		t.Fatalf("got %d approval requests, %v, want at least 2", len(list), err)
	}
	large := false
	for _, q := range list {
		for _, text := range append([]string{q.Summary, q.Rule}, values(q.Facts)...) {
			if i := strings.IndexFunc(text, func(r rune) bool {
				return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
			}); i >= 0 || len(text) > 4096 {
				t.Errorf("a prompt has control characters or is too long: %q", text)
			}
		}
		large = large || q.Facts["body_bytes"] == "1048576"
	}
	if !large {
		t.Errorf("no approval request shows the large body: %+v", list)
	}
	for _, args := range [][]string{{"approvals", "--all"}, {"net", "log", b.ID()}} {
		cmd := exec.CommandContext(t.Context(), program(t), append(args, "--state", a.state)...)
		out, err := cmd.CombinedOutput()
		if err != nil || strings.ContainsAny(string(out), "\x1b\x07\u202e\u009b") || !contains(string(out), "api.a4.test") {
			t.Errorf("crannog %v: %v %q", args, err, out)
		}
	}
}

func values(m map[string]string) (list []string) {
	for k, v := range m {
		list = append(list, k, v)
	}
	return list
}

func TestA5ApprovalExpiresAndSurvivesRestart(t *testing.T) {
	need(t)
	t.Parallel()
	a, s, path := serverEnvironment(t)
	up := a.web(t, 443, nil, "api.a5.test", "late.a5.test")
	b := a.newSandbox(t, `
level: light
network:
  unlisted: deny
  hosts:
    - {host: api.a5.test, rules: [{methods: [POST], do: ask}]}
    - {host: late.a5.test, approval: {timeout: 1s}, rules: [{methods: [POST], do: ask}]}
`)
	b.requireLines(b.python(send+"print(send('late.a5.test', seconds=300))"), "403")
	list, err := a.client.Approvals(t.Context(), crannog.ApprovalOptions{States: []string{"all"}, Sandbox: b.ID()})
	if err != nil || len(list) != 1 || list[0].State != "expired" {
		t.Errorf("the request with a timeout of one second: got %+v, %v, want expired", list, err)
	} else if _, err := a.client.Approve(t.Context(), list[0].ID, "", false); err == nil {
		t.Error("an expired request could be approved")
	}
	// Kill the server while an approval request is open.
	b.requireLines(b.python(send+"print(send('api.a5.test'))"), "waits")
	q := b.pending()
	s.Kill()
	next := servetest.Start(t, path, a.state)
	a.client = next.Client(t)
	sb, err := a.client.Get(t.Context(), b.ID())
	if err != nil {
		t.Fatal(err)
	}
	b.Sandbox = sb
	if again := b.pending(); again.ID != q.ID || again.Digest != q.Digest {
		t.Errorf("the approval request changed with the restart: %+v", again)
	}
	if len(up.seen()) > 0 {
		t.Errorf("the fake internet got %+v", up.seen())
	}
	if _, err := a.client.Approve(t.Context(), q.ID, "", false); err != nil {
		t.Fatal(err)
	}
	if got := b.line(send + "print(send('api.a5.test', seconds=300))"); got != "200" {
		t.Errorf("approved after the restart: %s", got)
	}
	b.end()
}
