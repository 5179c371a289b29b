package lifecycle_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/audited"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// secretStore is a secret store and a gateway in memory, which fail at a chosen call.
type secretStore struct {
	mu      sync.Mutex
	values  map[string][]string // newest first, by name
	failure error
	// redactorOf returns a sandbox's redactor, and unredacted are values that the gateway got
	// before they were redacted.
	redactorOf func(id string) *sandbox.Redactor
	unredacted []string
	update     int
}

func (k *secretStore) Resolve(_ context.Context, _ sandbox.Holder, p *policy.Policy) ([]egress.Secret, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failure != nil {
		return nil, k.failure
	}
	var list []egress.Secret
	for _, b := range p.Binds() {
		v := k.values[b.Name]
		if len(v) == 0 {
			return nil, fault.New(fault.Invalid, "secret_not_found", "no "+b.Name)
		}
		list = append(list, egress.Secret{Name: b.Name, Value: v[0], Old: v[1:], Host: b.Host, Header: b.Header})
	}
	return append(list, egress.Secret{Name: "SHORT", Value: "abc", Plain: true}), nil
}

func (k *secretStore) Keep(context.Context, string, string, map[string]config.Secret) error {
	return nil
}
func (k *secretStore) Drop(context.Context, string, string) error { return nil }

func (k *secretStore) Attach(_ context.Context, a sandbox.Attachment) (sandbox.Link, error) {
	k.recordUnredacted(a)
	null, err := os.Open(os.DevNull)
	return sandbox.Link{End: null}, err
}

func (k *secretStore) Update(_ context.Context, a sandbox.Attachment) error {
	k.recordUnredacted(a)
	return nil
}

// recordUnredacted records values that the gateway gets before they are redacted.
func (k *secretStore) recordUnredacted(a sandbox.Attachment) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.update++
	for _, s := range a.Secrets {
		if m := k.redactorOf(a.Sandbox); m != nil && !s.Plain && strings.Contains(m.Text().String(s.Value), s.Value) {
			k.unredacted = append(k.unredacted, s.Value)
		}
	}
}

func (k *secretStore) Detach(context.Context, string) error              { return nil }
func (k *secretStore) Adopt(context.Context, []string) ([]string, error) { return nil, nil }
func (k *secretStore) set(name string, values ...string) {
	k.mu.Lock()
	k.values[name] = values
	k.mu.Unlock()
}
func (k *secretStore) fail(err error) { k.mu.Lock(); k.failure = err; k.mu.Unlock() }

const (
	firstValue  = "tk-first-Zr8qP2mW"
	secondValue = "tk-second-Lx4vB9cd"
	otherValue  = "tk-other-9dQ7wE5r"
)

func binding(t *testing.T, names ...string) sandbox.Access {
	t.Helper()
	text := "policy: v1\nnetwork:\n  hosts:\n    - host: api.example.com\nsecrets:\n  bind:\n"
	if len(names) == 0 {
		text = "policy: v1\nnetwork:\n  hosts:\n    - host: api.example.com\n"
	}
	for _, n := range names {
		text += "    - {name: " + n + ", host: api.example.com, header: X-" + n + "}\n"
	}
	doc, err := policy.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Access{Net: sandbox.NetPolicy, Documents: []policy.Document{doc}}
}

func newSecretStore(t *testing.T) (*secretStore, option) {
	k := &secretStore{values: map[string][]string{}, redactorOf: func(string) *sandbox.Redactor { return nil }}
	t.Cleanup(func() {
		if len(k.unredacted) > 0 {
			t.Errorf("values were in use before they were redacted: %q", k.unredacted)
		}
	})
	return k, func(d *lifecycle.Deps) { d.Gateway, d.Sealed = k, k }
}

func wantRedacted(t *testing.T, m *sandbox.Redactor, want bool, values ...string) {
	t.Helper()
	for _, v := range values {
		if text, bytes := m.Text().String(v), m.Bytes().String(v); (text != v) != want || (bytes != v) != want {
			t.Errorf("%s is redacted as %q and %q", v, text, bytes)
		}
	}
}

func (r *rig) redactor(id string) *sandbox.Redactor {
	r.t.Helper()
	m, err := r.Redactor(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// The values that a policy binds are redacted before they can be used, through every change: of the
// value, of the policy, and of the process.
func TestRedactorFollowsSecrets(t *testing.T) {
	k, with := newSecretStore(t)
	k.set("KEY", firstValue)
	k.set("OTHER", otherValue)
	r := newRig(t, with)
	ctx := t.Context()
	sb, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: "base", Access: binding(t, "KEY")})
	if err != nil {
		t.Fatal(err)
	}
	m := r.redactor(sb.ID)
	k.redactorOf = func(id string) *sandbox.Redactor { m, _ := r.Redactor(context.Background(), id); return m }
	wantRedacted(t, m, true, firstValue)
	wantRedacted(t, m, false, secondValue, otherValue, "abc")

	// A new value: both are redacted, by the redactor that open streams use already.
	k.set("KEY", secondValue)
	if err := r.RotateSecrets(ctx, "alice"); err != nil {
		t.Fatal(err)
	}
	wantRedacted(t, m, true, firstValue, secondValue)

	// The value is removed: values that were in use stay redacted.
	k.set("KEY")
	if err := r.RotateSecrets(ctx, "alice"); err != nil {
		t.Fatal(err)
	}
	wantRedacted(t, m, true, firstValue, secondValue)

	// Another policy: values that the old one bound stay redacted.
	setAccess(t, r, sb.ID, binding(t, "OTHER"))
	wantRedacted(t, m, true, firstValue, secondValue, otherValue)
	setAccess(t, r, sb.ID, binding(t))
	wantRedacted(t, m, true, firstValue, secondValue, otherValue)
	if m != r.redactor(sb.ID) {
		t.Error("open streams have another redactor than new ones")
	}

	// The next process resolves values in use, and earlier ones that the store still has.
	k.set("KEY", secondValue, firstValue)
	setAccess(t, r, sb.ID, binding(t, "KEY"))
	k.redactorOf = func(string) *sandbox.Redactor { return nil }
	r.close()
	r.open(with)
	k.fail(errors.New("sealed: " + secondValue))
	for range 2 {
		m, err := r.Redactor(ctx, sb.ID)
		if m != nil || fault.CodeOf(err) != "mask_unavailable" || strings.Contains(fault.PublicText(err), secondValue) {
			t.Fatalf("while the secret store fails: %v, %v", m, err)
		}
	}
	k.fail(nil)
	wantRedacted(t, r.redactor(sb.ID), true, firstValue, secondValue)

	if err := r.Remove(ctx, alice, sb.ID); err != nil {
		t.Fatal(err)
	}
	if m, err := r.Redactor(ctx, sb.ID); m != nil || fault.KindOf(err) != fault.NotFound {
		t.Errorf("after its end: %v, %v", m, err)
	}
}

func setAccess(t *testing.T, r *rig, id string, a sandbox.Access) {
	t.Helper()
	if _, err := r.SetAccess(t.Context(), alice, id, func(sandbox.Access) (sandbox.Access, error) { return a, nil }); err != nil {
		t.Fatal(err)
	}
}

// A policy whose secrets were lost with the process before can be replaced.
func TestPolicyWithLostSecretsCanBeReplaced(t *testing.T) {
	k, with := newSecretStore(t)
	k.set("KEY", firstValue)
	r := newRig(t, with)
	sb, err := r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base", Access: binding(t, "KEY")})
	if err != nil {
		t.Fatal(err)
	}
	r.close()
	r.open(with)
	k.set("KEY")
	if _, err := r.Redactor(t.Context(), sb.ID); fault.CodeOf(err) != "mask_unavailable" {
		t.Fatal(err)
	}
	setAccess(t, r, sb.ID, binding(t))
	if m := r.redactor(sb.ID); m.Bytes() != nil {
		t.Error("a sandbox without secrets redacts values")
	}
}

// A sandbox without secrets has a redactor only for patterns, and none if its level does not look
// for these.
func TestRedactorWithoutSecrets(t *testing.T) {
	_, with := newSecretStore(t)
	r := newRig(t, with)
	const token = "ghp_0123456789abcdefABCDEF0123456789abcd"
	for level, masked := range map[string]bool{"standard": true, "strict": true, "light": false} {
		sb, err := r.Create(t.Context(), local, sandbox.CreateRequest{Template: "base", Access: sandbox.Access{Level: level, Net: sandbox.NetNone}})
		if err != nil {
			t.Fatalf("creation with the level %s: %v", level, err)
		}
		m := r.redactor(sb.ID)
		if m.Bytes() != nil || (m.Text() != nil) != masked || (m.Text().String(token) != token) != masked {
			t.Errorf("%s: text %v, bytes %v", level, m.Text(), m.Bytes())
		}
		if err := r.Remove(t.Context(), local, sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := r.Redactor(t.Context(), "i0000000000000000001"); m != nil || fault.KindOf(err) != fault.NotFound {
		t.Errorf("redactor of an unknown sandbox: got %v, %v; want NotFound", m, err)
	}
}

// A policy that another process put in force is redacted here too; if its values cannot be
// resolved, nothing passes.
func TestRedactorFollowsOtherProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, with := newSecretStore(t)
		k.set("KEY", firstValue)
		k.set("OTHER", otherValue)
		r := newRig(t, with)
		deps := lifecycle.Deps{
			Store: r.store, Engines: fake.Registry(r.engine), Templates: templates{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Audit: auditlog.New(r.record, slog.New(slog.DiscardHandler)), Settings: sandbox.Settings{AnyBoundary: true}, Gateway: k, Sealed: k,
		}
		other, err := audited.NewService(deps)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close(context.Background())
		sb, err := r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base", Access: binding(t, "KEY")})
		if err != nil {
			t.Fatal(err)
		}
		m := r.redactor(sb.ID)
		wantRedacted(t, m, false, otherValue)
		change := func(a sandbox.Access) {
			t.Helper()
			if _, err := other.SetAccess(t.Context(), alice, sb.ID, func(sandbox.Access) (sandbox.Access, error) { return a, nil }); err != nil {
				t.Fatal(err)
			}
		}
		change(binding(t, "OTHER"))
		time.Sleep(6 * time.Second)
		wantRedacted(t, m, true, firstValue, otherValue)

		change(binding(t, "KEY", "OTHER"))
		k.fail(errors.New("closed"))
		time.Sleep(6 * time.Second)
		if _, err := r.Redactor(t.Context(), sb.ID); fault.CodeOf(err) != "mask_unavailable" {
			t.Errorf("while the secret store fails: %v", err)
		}
		k.fail(nil)
		time.Sleep(6 * time.Second)
		wantRedacted(t, r.redactor(sb.ID), true, firstValue, otherValue)
	})
}

// P34: the audit log has no value, even if the policy shows values in outputs.
func TestAuditRedactorHidesAllValues(t *testing.T) {
	const value, token = "tk-Zr8qP2mW", "ghp_0123456789abcdefABCDEF0123456789abcd"
	for _, o := range []sandbox.RedactorOptions{{}, {Patterns: true}, {Outputs: true}, {Outputs: true, Patterns: true}} {
		m, err := sandbox.NewRedactor([]redact.Value{{Name: "KEY", Data: []byte(value)}}, o)
		if err != nil {
			t.Fatal(err)
		}
		if shown := strings.Contains(m.Text().String(value), value); shown == o.Outputs {
			t.Errorf("%+v: control: shown in outputs: %v", o, shown)
		}
		got := m.Record().String(value + " " + token)
		if strings.Contains(got, value) || strings.Contains(got, token) == o.Patterns {
			t.Errorf("audit redactor with %+v: got %s", o, got)
		}
	}
}
