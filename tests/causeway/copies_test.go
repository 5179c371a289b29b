package causeway_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// policyWithSecrets is a policy with one allowed host, with a denied path, and bound secrets.
func policyWithSecrets(bindings string) string {
	return `
level: light
network: {unlisted: deny, hosts: [{host: api.copies.test, rules: [{paths: ["/closed/**"], do: deny}, {paths: ["/**"], do: allow}]}]}
` + bindings
}

// binding sets the header Authorization to a secret's value.
func binding(secret string) string {
	return "secrets: {bind: [{name: " + secret + `, host: api.copies.test, header: Authorization, format: "Bearer {}"}]}` + "\n"
}

// inspectNetwork prints the sandbox's network as seen from inside: the digest of its certificate
// authority, the digests of all trusted authorities of gateways, and the results of requests.
const inspectNetwork = searchEverywhere + `
import hashlib, subprocess
OWN = '/etc/ssl/certs/crannog.pem'
def sum(der): return hashlib.sha256(der).hexdigest()
def trusted():
    c = ssl.create_default_context()
    for name in ('SSL_CERT_FILE', 'CURL_CA_BUNDLE'): c.load_verify_locations(os.environ[name])
    both = zip(c.get_ca_certs(), c.get_ca_certs(True))
    return [sum(der) for text, der in both if 'Crannog' in str(text['subject'])]
print(sum(ssl.PEM_cert_to_DER_cert(open(OWN).read())))
print(' '.join(trusted()))
# The allowed host, decrypted: the gateway's authority signs its certificate.
a = get('api.copies.test', '/as/' + os.uname().nodename)
print(status(a), leaks(a), handshake('api.copies.test', ca=OWN), handshake('api.copies.test', ca='/tmp/world.pem'))
# Denied: a path, a name, and a CONNECT to the proxy.
a, (_, p) = get('api.copies.test', '/closed/as/' + os.uname().nodename), connect('evil.copies.test:443')
print(status(a), rule(a), reach('evil.copies.test', 443), status(p), rule(p))
# Search for the secret, and for a planted text as a control.
print(os.environ.get('COPIES'))
child = subprocess.Popen(['sleep', '30'], env={'PLANTED': 'planted-7f3e' + '9d2c'})
open('/tmp/plant', 'w').write('planted-7f3e' + '9d2c')
while 'environ' not in found(b'planted-7f3e' + b'9d2c'): time.sleep(0.02)
print(found(K.encode()), found((REST[0] + REST[1]).encode()), 'file' in found(b'planted-7f3e' + b'9d2c'))
child.kill()
os.remove('/tmp/plant')
`

// newValue is the secret's value after its rotation.
const newValue = "sk-second-0a1b2c3d4e5f60718293"

// copiesTest is the fake internet in which copies are checked.
type copiesTest struct {
	*environment
	t           testing.TB
	up, evil    *web
	authorities []string // the digests of all authorities so far
}

// requireOwnAttachment checks that a sandbox has its own attachment, which sets the header to auth,
// and a certificate authority that no earlier sandbox has. It appends the authority's digest to
// c.authorities.
func (c *copiesTest) requireOwnAttachment(what string, b *testSandbox, auth string) {
	c.t.Helper()
	before := len(c.up.seen())
	got := b.pythonAs("root", fmt.Sprintf("REST = (%q, %q)\n", newValue[:14], newValue[14:])+inspectNetwork)
	if len(got) != 6 {
		c.t.Fatalf("inspect the network of %s: got %q, want 6 lines", what, got)
	}
	if len(got[0]) != 64 || got[1] != got[0] {
		c.t.Errorf("%s: the authority is %s, but the trusted ones are %q", what, got[0], got[1])
	}
	if slices.Contains(c.authorities, got[0]) {
		c.t.Errorf("%s: another attachment has the same authority", what)
	}
	c.authorities = append(c.authorities, got[0])
	placeholder := "None"
	if auth != "" {
		placeholder = "sealed-by-crannog-COPIES"
	}
	b.requireLines(got[2:], "200 False done tls-error", "403 host:api.copies.test/rule-1 no-name 403 network.unlisted", placeholder, "[] [] True")
	// One request of this sandbox reached the host, with the value.
	seen := c.up.seen()[before:]
	if len(seen) != 1 || seen[0].Path != "/as/"+b.ID() || seen[0].auth() != auth {
		c.t.Errorf("%s: the host saw %+v", what, seen)
	}
	if len(c.evil.seen()) > 0 || len(c.dials(c.evil.address)) > 0 {
		c.t.Errorf("%s: the denied host was reached", what)
	}
	b.awaitFlow("its request", func(r api.FlowRecord) bool {
		return r.Kind == "http" && r.Path == "/as/"+b.must("uname -n") && r.Effect == "allow"
	})
	sb, err := c.client.Get(c.t.Context(), b.ID())
	if err != nil {
		c.t.Fatal(err)
	}
	b.Sandbox = sb
	if len(sb.Info().Effective.Checks) < 4 {
		c.t.Errorf("%s: too few checks from inside: %+v", what, sb.Info().Effective.Checks)
	}
	for _, check := range sb.Info().Effective.Checks {
		if !check.Holds {
			c.t.Errorf("%s: the check failed: %s", what, check.Check)
		}
	}
}

// requestTrusting returns the result of a TLS handshake with the host that trusts only the given
// authority.
func (b *testSandbox) requestTrusting(authority string) string {
	b.t.Helper()
	if err := b.FS().WithContext(b.t.Context()).WriteFile("tmp/other.pem", []byte(authority), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return b.line("print(handshake('api.copies.test', ca='/tmp/other.pem'))")
}

// P26: a sandbox restored from a snapshot, as itself or as a copy, has its own attachment: its own
// authority and policy, and the current secrets.
func TestCopiesHaveOwnAttachments(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	c := &copiesTest{environment: a, t: t, up: a.web(t, 443, serveReflection, "api.copies.test"), evil: a.web(t, 443, nil, "evil.copies.test")}
	a.storeSecret(t, "COPIES", canary)
	one := a.newSandbox(t, policyWithSecrets(binding("COPIES")))
	c.requireOwnAttachment("the source", one, "Bearer "+canary)
	authority := one.must("cat /etc/ssl/certs/crannog.pem")
	if got := one.requestTrusting(authority); got != "done" {
		t.Errorf("control: the source does not trust its own authority: %s", got)
	}
	one.must("setsid sleep 31536 >/dev/null 2>&1 & echo before > /tmp/when")
	requireContinued := func(what string, b *testSandbox) {
		t.Helper()
		if got := b.must("cat /tmp/when; pgrep -cx sleep"); got != "before\n1" {
			t.Errorf("control: %s did not continue from the source: %q", what, got)
		}
		if got := b.requestTrusting(authority); got != "tls-error" {
			t.Errorf("%s: the source's authority is valid in it: %s", what, got)
		}
	}

	forks, err := one.Fork(t.Context(), api.CreateFork{Count: 2})
	for _, f := range forks {
		b := &testSandbox{Sandbox: f, t: t, environment: a}
		t.Cleanup(b.end)
	}
	if err != nil || len(forks) != 2 {
		t.Fatalf("fork the source: got %d forks, %v, want 2", len(forks), err)
	}
	n, err := one.Snapshot(t.Context(), api.CreateSnapshot{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.client.RemoveSnapshot(noContext(), n.ID); err != nil {
			t.Error(err)
		}
	})
	one.must("echo after > /tmp/when")

	for i, f := range forks {
		b := &testSandbox{Sandbox: f, t: t, environment: a}
		requireContinued(fmt.Sprint("fork ", i), b)
		c.requireOwnAttachment(fmt.Sprint("fork ", i), b, "Bearer "+canary)
	}
	from := crannog.Template(n.ID)
	fromSnapshot := a.newSandbox(t, policyWithSecrets(binding("COPIES")), from)
	requireContinued("a new one", fromSnapshot)
	c.requireOwnAttachment("a new one", fromSnapshot, "Bearer "+canary)
	// A sandbox does not send the value that the snapshot's policy bound.
	bare := a.newSandbox(t, policyWithSecrets(""), from)
	c.requireOwnAttachment("a new one that binds nothing", bare, "")

	// The source is unchanged: its attachment is the same.
	if got := one.requestTrusting(authority); got != "done" || one.must("cat /tmp/when") != "after" {
		t.Errorf("the source after it was copied: %s", got)
	}
	// The value is rotated now, also for snapshots taken before.
	if err := fromSnapshot.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.client.RotateSecret(t.Context(), "COPIES", api.RotateSecret{Value: newValue}); err != nil {
		t.Fatal(err)
	}
	if err := fromSnapshot.Resume(t.Context(), 5*time.Hour); err != nil {
		t.Fatal(err)
	}
	requireContinued("resumed", fromSnapshot)
	c.requireOwnAttachment("resumed", fromSnapshot, "Bearer "+newValue)
	if err := one.Rollback(t.Context(), n.ID); err != nil {
		t.Fatal(err)
	}
	requireContinued("rolled back", one)
	c.requireOwnAttachment("rolled back", one, "Bearer "+newValue)
	fromOldSnapshot := a.newSandbox(t, policyWithSecrets(binding("COPIES")), from)
	c.requireOwnAttachment("a late one", fromOldSnapshot, "Bearer "+newValue)

	// A later change of one sandbox affects only itself.
	if err := one.SetAccess(t.Context(), accessOf(policyWithSecrets(""))); err != nil {
		t.Fatal(err)
	}
	for b, want := range map[*testSandbox]string{one: "", fromOldSnapshot: "Bearer " + newValue} {
		if got := b.line("print(status(get('api.copies.test', '/last')))"); got != "200" || lastOf(c.up).auth() != want {
			t.Errorf("after one sandbox's policy changed: got %s with %q, want %q", got, lastOf(c.up).auth(), want)
		}
	}
}

func lastOf(w *web) request {
	list := w.seen()
	return list[len(list)-1]
}

// P26: values that a sandbox was created with are stored for each of its forks, and not for
// sandboxes made from its snapshot. Later changes of one sandbox do not affect another.
func TestInlineSecretsOfCopies(t *testing.T) {
	need(t)
	t.Parallel()
	s := newServed(t)
	up := s.web(t, 443, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "got "+r.Header.Get("X-Fixed"))
	}, "api.own.test")
	network := func(value string) string {
		return `"network":{"allowOut":["api.own.test"],"denyOut":["0.0.0.0/0"],"rules":{"api.own.test":[{"transform":{"headers":{"X-Fixed":"` + value + `"}}}]}}`
	}
	id := s.create("," + network(canary))
	requireSent := func(what, id, want string, more ...string) {
		t.Helper()
		out, ok := s.curl(id, "https://api.own.test/", more...)
		if seen := up.seen(); !ok || len(seen) == 0 || seen[len(seen)-1].Header.Get("X-Fixed") != want || contains(out, canary) {
			t.Errorf("%s: sent %t, output %q, and the host got %+v, want X-Fixed %q", what, ok, out, seen, want)
		}
	}
	requireSent("the source", id, canary)
	client := s.Client(t)
	source, err := client.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	forks, err := source.Fork(t.Context(), api.CreateFork{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	forkID := forks[0].ID()
	s.killAtEnd(forkID)
	requireSent("its copy", forkID, canary)
	n, err := source.Snapshot(t.Context(), api.CreateSnapshot{})
	if err != nil {
		t.Fatal(err)
	}
	fromSnapshot := s.call("POST", "/v2/sandboxes", `{"templateID":"`+n.ID+`","network":{"allowOut":["api.own.test"],"denyOut":["0.0.0.0/0"]}}`)["sandboxID"].(string)
	s.killAtEnd(fromSnapshot)
	requireSent("one made of its snapshot", fromSnapshot, "", trustOutside...)
	if one, two, three := s.countOwnSecrets(id), s.countOwnSecrets(forkID), s.countOwnSecrets(fromSnapshot); one != 1 || two != 1 || three != 0 {
		t.Errorf("own secrets: got %d for the source, %d for its fork and %d for the snapshot's sandbox, want 1, 1, 0", one, two, three)
	}
	// Change the source's value, then remove the source with it.
	s.call("PUT", "/sandboxes/"+id+"/network", network(newValue)[len(`"network":`):])
	requireSent("the source, changed", id, newValue)
	requireSent("its copy", forkID, canary)
	s.call("DELETE", "/sandboxes/"+id, "")
	requireSent("its copy, without the source", forkID, canary)
	if one, two := s.countOwnSecrets(id), s.countOwnSecrets(forkID); one != 0 || two != 1 {
		t.Errorf("own secrets after the source's removal: got %d for the source and %d for its fork, want 0, 1", one, two)
	}
	for _, value := range []string{canary, newValue} {
		if found := s.filesContaining(value); len(found) > 0 {
			t.Errorf("the value is in plain text in %v", found)
		}
	}
	if len(s.filesContaining(forkID)) == 0 {
		t.Error("control: the search finds no text at all")
	}
}
