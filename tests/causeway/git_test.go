package causeway_test

import (
	"net/http/cgi"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// forge starts git's own server behind HTTPS, with one repository.
func forge(t testing.TB, a *environment, hostname string) (bare string, s *web) {
	t.Helper()
	dir := hosttest.ShortDir(t)
	bare = filepath.Join(dir, "acme", "pay.git")
	work := filepath.Join(dir, "work")
	host(t, dir, "git", "init", "-q", "--bare", "-b", "main", bare)
	host(t, dir, "git", "-C", bare, "config", "http.receivepack", "true")
	host(t, dir, "git", "init", "-q", "-b", "main", work)
	if err := os.WriteFile(filepath.Join(work, "README"), []byte("a project\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	host(t, work, "git", "add", ".")
	host(t, work, "git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "first")
	host(t, work, "git", "push", "-q", bare, "main", "main:refs/heads/agent/old", "main:refs/heads/release")
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(host(t, dir, "git", "--exec-path")), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=agent", "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"},
	}
	return bare, a.web(t, 443, backend.ServeHTTP, hostname)
}

func TestA6GitAndPublish(t *testing.T) {
	need(t, hosttest.Git)
	t.Parallel()
	a := sharedEnvironment(t)
	bare, s := forge(t, a, "git.a6.test")
	registry := a.web(t, 443, nil, "registry.npmjs.org")
	pypi := a.web(t, 443, nil, "upload.pypi.org")
	a.storeSecret(t, "A6", canary)
	b := a.newSandbox(t, `
level: light
network:
  unlisted: deny
  hosts:
    - {host: git.a6.test, rules: [{do: allow}]}
    - {host: registry.npmjs.org, rules: [{do: allow}]}
    - {host: upload.pypi.org, rules: [{do: allow}]}
git:
  fetch: allow
  push: {unlisted: deny, delete: deny, force: deny}
  remotes: [{host: git.a6.test, repo: acme/pay, push: ["refs/heads/agent/**", "refs/heads/release"]}]
packages: {publish: ask}
secrets: {bind: [{name: A6, host: git.a6.test, basic: agent}]}
`)
	b.must(`cd /tmp && git config --global user.name a && git config --global user.email a@example.com && git config --global http.postBuffer 70000 &&
git clone -q https://git.a6.test/acme/pay.git work && cat work/README && cd work && git checkout -q -b agent/x && head -c 300000 /dev/urandom > big && git add . && git commit -q -m change`)
	if len(s.seen()) == 0 || !strings.HasPrefix(s.seen()[0].auth(), "Basic ") {
		t.Error("the credential was not set")
	}
	refs := func() string { return host(t, bare, "git", "for-each-ref", "--format=%(refname)") }
	if out, code := b.sh("cd /tmp/work && git push origin agent/x 2>&1"); code != 0 || !contains(refs(), "refs/heads/agent/x") {
		t.Fatalf("an agent's branch: exit %d, %s", code, out)
	}
	// A change of a ref that is listed by its full name needs an approval.
	p := newApprovers(t, a)
	p.answer(func(api.Approval) bool { return false })
	before := host(t, bare, "git", "for-each-ref")
	for name, line := range map[string]string{
		"main":      "git push origin agent/x:main",
		"delete":    "git push origin --delete agent/old",
		"tag":       "git tag v1 && git push origin v1",
		"force":     "git push --force origin HEAD:refs/heads/release",
		"mixed":     "git push origin HEAD:refs/heads/agent/z HEAD:refs/heads/main",
		"in one":    "git -c http.postBuffer=10000000 push origin HEAD:refs/heads/main",
		"protocol0": "git -c protocol.version=0 push origin HEAD:refs/heads/main",
	} {
		out, code := b.sh("cd /tmp/work && " + line + " 2>&1")
		if code == 0 || !contains(out, "crannog: blocked git push") || contains(out, "hung up") {
			t.Errorf("%s: exit %d, %s", name, code, out)
		}
	}
	// git itself compresses its fetch requests. Servers accept compressed pushes too.
	const compressed = `
import gzip, subprocess
def git(*args): return subprocess.run(('git', '-C', '/tmp/work') + args, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
def push(ref, coding='gzip', pack=gzip.compress):
    line = '0' * 40 + ' ' + git('rev-parse', 'HEAD').decode().strip() + ' ' + ref + '\0report-status side-band-64k'
    # The server has the commit, so the pack is empty.
    sent = ('%04x%s0000' % (len(line) + 4, line)).encode() + git('pack-objects', '--stdout')
    return get('git.a6.test', '/acme/pay.git/git-receive-pack', method='POST', body=pack(sent).decode('latin-1'),
        extra='Content-Type: application/x-git-receive-pack-request\r\nContent-Encoding: %s\r\n' % coding)
`
	b.requireLines(b.python(compressed+`
a = push('refs/heads/packed')
print(status(a), 'ng refs/heads/packed' in a, 'crannog: blocked git push' in a)
a = push('refs/tags/packed', coding='x-gzip')
print(status(a), 'ng refs/tags/packed' in a)
a = push('refs/heads/agent/plain', pack=bytes)
print(status(a), 'unpack ok' in a)
`), "200 True True", "200 True", "200 False")
	if after := host(t, bare, "git", "for-each-ref"); after != before {
		t.Errorf("denied pushes changed the refs: got\n%s want\n%s", after, before)
	}
	b.requireLines(b.python(compressed+`
a = push('refs/heads/agent/packed')
print(status(a), 'unpack ok' in a, 'ok refs/heads/agent/packed' in a)
`), "200 True True")
	if !contains(refs(), "refs/heads/agent/packed\n") {
		t.Errorf("a compressed push to an agent's branch: the refs are %s", refs())
	}
	// The gateway forwards the decoded request, to which it applied the policy.
	if r := s.seen()[len(s.seen())-1]; r.Header.Get("Content-Encoding") != "" || !contains(r.Body, "refs/heads/agent/packed\x00", "PACK") {
		t.Errorf("what reached the server: %q %.100q", r.Header, r.Body)
	}
	b.awaitFlow("a push", func(r api.FlowRecord) bool { return r.Kind == "git" && r.Effect == "deny" })

	// A publication is recognised by its request, regardless of the program that sends it.
	publish := `
print(status(get('registry.npmjs.org', '/left-pad', method='PUT', body='{"name":"left-pad","versions":{"1.0.0":{}},"_attachments":{}}', extra='Content-Type: application/json\r\n')))
print(status(get('upload.pypi.org', '/legacy/', method='POST', body='--b\r\nContent-Disposition: form-data; name=":action"\r\n\r\nfile_upload\r\n--b--\r\n', extra='Content-Type: multipart/form-data; boundary=b\r\n')))
print(status(get('registry.npmjs.org', '/left-pad')))
`
	b.requireLines(b.python(publish), "403", "403", "200")
	if len(registry.seen()) != 1 || len(pypi.seen()) != 0 {
		t.Errorf("unapproved publications: the registries got %+v %+v", registry.seen(), pypi.seen())
	}
	p.answer(func(q api.Approval) bool { return q.Kind == "pkg.publish" })
	publish = strings.NewReplacer("1.0.0", "1.0.1", "file_upload", "file_upload ").Replace(publish)
	b.requireLines(b.python(publish), "200", "200", "200")
	for _, q := range p.asked() {
		if q.Kind != "pkg.publish" && q.Kind != "git.push" {
			t.Errorf("unexpected approval request %+v", q)
		}
	}
}
