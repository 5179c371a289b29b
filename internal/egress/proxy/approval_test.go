package proxy

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// approvals is an approver that grants each request as often as it was approved before.
type approvals struct {
	mu      sync.Mutex
	granted map[string]int
}

func digest(q egress.ApprovalRequest) string { return approval.Digest(q) }

func (d *approvals) answer(ctx context.Context, q egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.granted[digest(q)] > 0 {
		d.granted[digest(q)]--
		return egress.ApprovalOutcome{Granted: true, State: "approved", Approval: "ap7"}, nil
	}
	return egress.ApprovalOutcome{State: "pending", Approval: "ap7"}, nil
}

func (d *approvals) approve(q egress.ApprovalRequest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.granted == nil {
		d.granted = map[string]int{}
	}
	d.granted[digest(q)]++
}

const askPolicy = `
level: minimal
network:
  unlisted: ask
  hosts:
    - {host: api.good.test, rules: [{id: write, methods: [POST], do: ask}, {id: read, methods: [GET], do: allow}]}
`

func TestGrantCoversSameRequestOnly(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	d := &approvals{}
	s := token("api.good.test")
	b := w.newSandbox(askPolicy, func(c *Config) { c.Secrets = []egress.Secret{s} })
	b.people.answer = d.answer
	big := strings.Repeat("x", 3<<20) // more than stays in memory
	code, body := b.do("POST", "https://api.good.test/pay?to=a", big, nil)
	if code != 403 || !strings.Contains(body, `"id": "ap7"`) || !strings.Contains(body, "approval_pending") || !strings.Contains(body, "byte for byte") {
		t.Fatalf("an unapproved request: got %d %s, want 403 with a pending approval", code, body)
	}
	q := b.people.questions()[0]
	if q.Kind != egress.AskRequest || q.Rule != "host:api.good.test/write" || q.Policy == "" || q.Facts["body_bytes"] != "3145728" {
		t.Errorf("the approval request is %+v, want one of the rule write for a body of 3145728 bytes", q)
	}
	d.approve(q)
	for name, other := range map[string]func() (int, string){
		"body":  func() (int, string) { return b.do("POST", "https://api.good.test/pay?to=a", big[1:]+"y", nil) },
		"path":  func() (int, string) { return b.do("POST", "https://api.good.test/pay2?to=a", big, nil) },
		"query": func() (int, string) { return b.do("POST", "https://api.good.test/pay?to=b", big, nil) },
		"header": func() (int, string) {
			return b.do("POST", "https://api.good.test/pay?to=a", big, http.Header{"Content-Type": {"text/plain"}})
		},
		"method": func() (int, string) {
			return b.do("POST", "https://api.good.test/pay?to=a", big, http.Header{"X-Http-Method-Override": {"POST"}})
		},
	} {
		if code, body := other(); code != 403 {
			t.Errorf("an approved request with another %s: got %d %s, want 403", name, code, body)
		}
	}
	s.Generation, s.Old, s.Value = 2, []string{secretValue}, "sk-second-0a1b2c3d4e5f60718293"
	if err := b.Update(b.current.Load().policy, []egress.Secret{s}); err != nil {
		t.Fatal(err)
	}
	if code, _ := b.do("POST", "https://api.good.test/pay?to=a", big, nil); code != 403 {
		t.Errorf("an approved request with a newer secret: got %d, want 403", code)
	}
	if len(up.log()) != 0 {
		t.Fatalf("upstream got %d requests before the approved one, want 0", len(up.log()))
	}
	s = token("api.good.test")
	if err := b.Update(b.current.Load().policy, []egress.Secret{s}); err != nil {
		t.Fatal(err)
	}
	if code, body := b.do("POST", "https://api.good.test/pay?to=a", big, nil); code != 200 {
		t.Fatalf("the approved request: got %d %s, want 200", code, body)
	}
	if got := up.log()[0]; got.Body != big || got.Auth != "Bearer "+secretValue {
		t.Errorf("upstream got %d bytes with the authorization %q", len(got.Body), got.Auth)
	}
	if code, _ := b.do("POST", "https://api.good.test/pay?to=a", big, nil); code != 403 {
		t.Errorf("the approved request a second time: got %d, want 403", code)
	}
	if n := b.load.spooled.Load(); n != 0 {
		t.Errorf("%d bytes of bodies are still held", n)
	}
	hosttest.Eventually(t, "there is an entry with the approval", func() bool {
		for _, r := range b.records.all(egress.KindHTTP) {
			if r.Effect == egress.Allow && r.Approval == "ap7" && r.Status == 200 && r.Sent == 3<<20 {
				return true
			}
		}
		return false
	})
}

func TestApprovalHoldsRequest(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	b := w.newSandbox(askPolicy, func(c *Config) { c.Limits.Hold = 50 * time.Millisecond })
	b.people.answer = func(ctx context.Context, _ egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
		<-ctx.Done()
		return egress.ApprovalOutcome{State: "pending", Approval: "ap1"}, nil
	}
	if code, _ := b.do("POST", "https://api.good.test/", "x", nil); code != 403 {
		t.Errorf("a request without a decision in time: got %d, want 403", code)
	}
	b = w.newSandbox(askPolicy) // with the default hold time, which is longer than the failure takes
	b.people.answer = func(context.Context, egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
		return egress.ApprovalOutcome{}, io.ErrUnexpectedEOF
	}
	if code, body := b.do("POST", "https://api.good.test/", "x", nil); code != 503 || !strings.Contains(body, "approvals_unavailable") {
		t.Errorf("an approver that fails: got %d %s, want 503", code, body)
	}
	if len(up.log()) != 0 {
		t.Error("an unapproved request reached upstream")
	}
}

// Without configuration, the default limits how long an approval holds a request.
func TestApprovalHoldsRequestForTwentySeconds(t *testing.T) {
	b := newEnvironment(t).newSandbox(askPolicy)
	synctest.Test(t, func(t *testing.T) {
		b.people.answer = func(ctx context.Context, _ egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
			<-ctx.Done()
			return egress.ApprovalOutcome{State: "pending", Approval: "ap1"}, nil
		}
		started := time.Now()
		id, stop := b.requestApproval(t.Context(), b.current.Load(), egress.Decision{}, "api.good.test", 443, egress.ApprovalRequest{})
		if took := time.Since(started); took != 20*time.Second || id != "" || stop == nil || stop.code != "approval_pending" {
			t.Errorf("held for %v, with ID %q and refusal %+v, want 20s and pending", took, id, stop)
		}
	})
}

func TestUnlistedHostNeedsApproval(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "new.test")
	plain := w.serve("80", nil, "plain.test")
	d := &approvals{}
	b := w.newSandbox(askPolicy)
	b.people.answer = d.answer
	code, body := b.get("https://new.test/x")
	if code != 403 || !strings.Contains(body, "rule=network.unlisted approval=ap7 state=pending") {
		t.Fatalf("a request to an unlisted host: got %d %s, want 403 with a pending approval", code, body)
	}
	q := b.people.questions()[0]
	if q.Kind != egress.AskHost || q.Facts["host"] != "new.test" || q.Facts["port"] != "443" {
		t.Errorf("the approval request is %+v, want one of the host new.test:443", q)
	}
	if w.lookups.Load() != 0 {
		t.Error("the name was resolved before the approval")
	}
	d.approve(q)
	// The connection is not decrypted, so the program gets the host's own certificate.
	c, err := b.tls("new.test", "new.test", w.roots)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.raw(c, "GET / HTTP/1.1\r\nHost: new.test\r\nConnection: close\r\n\r\n"); !strings.Contains(got, "hello from new.test") {
		t.Errorf("the approved connection returned %q", got)
	}
	c.Close()
	if len(up.log()) != 1 {
		t.Errorf("upstream got %d requests, want 1", len(up.log()))
	}
	if code, _ := b.get("https://new.test/x"); code != 403 {
		t.Errorf("the next connection: got %d, want 403", code)
	}
	if code, _ := b.get("http://plain.test/"); code != 403 || len(plain.log()) != 0 {
		t.Errorf("plain HTTP: got %d, want 403", code)
	}
	all := b.people.questions()
	d.approve(all[len(all)-1])
	if code, _ := b.get("http://plain.test/"); code != 200 {
		t.Errorf("approved plain HTTP: got %d, want 200", code)
	}
	if code, _ := b.with(b.proxied(), "GET", "http://plain.test/", "", nil); code != 403 {
		t.Errorf("plain HTTP over the proxy port: got %d, want 403", code)
	}
	d.approve(all[len(all)-1])
	if code, _ := b.with(b.proxied(), "GET", "http://plain.test/", "", nil); code != 200 {
		t.Errorf("approved plain HTTP over the proxy port: got %d, want 200", code)
	}
}

func TestSecretNeedsApprovalForEachUse(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	d := &approvals{}
	b := w.newSandbox(askPolicy, func(c *Config) {
		s := token("api.good.test")
		s.Approve = true
		c.Secrets = []egress.Secret{s}
	})
	b.people.answer = d.answer
	for range 2 {
		if code, _ := b.get("https://api.good.test/"); code != 403 {
			t.Errorf("an unapproved use: got %d, want 403", code)
		}
		all := b.people.questions()
		if q := all[len(all)-1]; q.Kind != egress.AskSecret || q.Rule != "secret:TOKEN" {
			t.Errorf("the approval request is %+v, want one of the secret TOKEN", q)
		}
		d.approve(all[len(all)-1])
		if code, _ := b.get("https://api.good.test/"); code != 200 {
			t.Errorf("an approved use: got %d, want 200", code)
		}
	}
	if len(up.log()) != 2 {
		t.Errorf("upstream got %d requests, want 2", len(up.log()))
	}
}

func TestSecretNeedsApprovalForFirstUse(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	d := &approvals{}
	s := token("api.good.test")
	s.ApproveFirst = true
	b := w.newSandbox(askPolicy, func(c *Config) { c.Secrets = []egress.Secret{s} })
	b.people.answer = d.answer
	if code, _ := b.get("https://api.good.test/"); code != 403 {
		t.Errorf("an unapproved use: got %d, want 403", code)
	}
	all := b.people.questions()
	d.approve(all[len(all)-1])
	for range 3 {
		if code, _ := b.get("https://api.good.test/other"); code != 200 {
			t.Errorf("a use after the approval: got %d, want 200", code)
		}
	}
	if n := len(b.people.questions()); n != 2 {
		t.Errorf("%d approval requests, want 2: one pending and one that used the grant", n)
	}
	// Another value needs its own approval.
	s.Generation++
	if err := b.Update(b.current.Load().policy, []egress.Secret{s}); err != nil {
		t.Fatal(err)
	}
	if code, _ := b.get("https://api.good.test/"); code != 403 {
		t.Errorf("a use after the rotation: got %d, want 403", code)
	}
	if len(up.log()) != 3 {
		t.Errorf("upstream got %d requests, want 3", len(up.log()))
	}
}

func TestPublicationNeedsApproval(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "registry.npmjs.org")
	d := &approvals{}
	b := w.newSandbox(`
level: minimal
packages: {publish: ask}
network: {unlisted: deny, hosts: [{host: registry.npmjs.org, encoded_slash: true, rules: [{do: allow}]}]}
`)
	b.people.answer = d.answer
	if code, _ := b.do("PUT", "https://registry.npmjs.org/@acme%2fpay", "{}", nil); code != 403 {
		t.Errorf("an unapproved publication: got %d, want 403", code)
	}
	q := b.people.questions()[0]
	if q.Kind != egress.AskPublish || !strings.Contains(q.Summary, "publish npm") {
		t.Errorf("the approval request is %+v, want one of a publication to npm", q)
	}
	if code, _ := b.get("https://registry.npmjs.org/@acme%2fpay"); code != 200 {
		t.Errorf("an installation: got %d, want 200", code)
	}
	d.approve(q)
	if code, _ := b.do("PUT", "https://registry.npmjs.org/@acme%2fpay", "{}", nil); code != 200 {
		t.Errorf("the approved publication: got %d, want 200", code)
	}
	if l := up.log(); len(l) != 2 || l[1].Path != "/@acme%2fpay" {
		t.Errorf("upstream got %+v, want the installation and the publication", l)
	}
}

func TestUnlistedHostNeedsOneApprovalPerConnection(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "new.test")
	d := &approvals{}
	b := w.newSandbox("level: standard\n")
	b.people.answer = d.answer
	for _, keep := range []*http.Client{b.client(false), b.client(true)} {
		if code, _ := b.with(keep, "GET", "https://new.test/x", "", nil); code != 403 {
			t.Errorf("an unapproved connection: got %d, want 403", code)
		}
		all := b.people.questions()
		q := all[len(all)-1]
		if q.Kind != egress.AskHost || q.Rule != "network.unlisted" {
			t.Errorf("the approval request is %+v, want one of an unlisted host", q)
		}
		d.approve(q)
		for range 3 {
			if code, body := b.with(keep, "GET", "https://new.test/x", "", nil); code != 200 {
				t.Errorf("an approved connection: got %d %s, want 200", code, body)
			}
		}
	}
	if len(up.log()) != 6 {
		t.Errorf("upstream got %d requests, want 6", len(up.log()))
	}
}
