package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// inputRecorder is a gateway without a network that records its inputs.
type inputRecorder struct {
	mu   sync.Mutex
	last sandbox.Attachment
	fail error
}

func (r *inputRecorder) take(a sandbox.Attachment) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail == nil {
		r.last = a
	}
	return r.fail
}

func (r *inputRecorder) setFail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func (r *inputRecorder) Attach(_ context.Context, a sandbox.Attachment) (sandbox.Link, error) {
	if err := r.take(a); err != nil {
		return sandbox.Link{}, err
	}
	null, err := os.Open(os.DevNull)
	return sandbox.Link{End: null}, err
}
func (r *inputRecorder) Update(_ context.Context, a sandbox.Attachment) error       { return r.take(a) }
func (r *inputRecorder) Detach(context.Context, string) error                       { return nil }
func (r *inputRecorder) Adopt(context.Context, []string) (lost []string, err error) { return nil, nil }

// ownValueStore stores sandboxes' own values.
type ownValueStore struct {
	mu     sync.Mutex
	values map[string]map[string]map[string]config.Secret // by sandbox and name
}

func (s *ownValueStore) Keep(_ context.Context, id, name string, values map[string]config.Secret) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values[id] == nil {
		s.values[id] = map[string]map[string]config.Secret{}
	}
	if _, exists := s.values[id][name]; exists {
		return errors.New("the name is not new")
	}
	s.values[id][name] = maps.Clone(values)
	return nil
}

func (s *ownValueStore) Drop(_ context.Context, id, except string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.values[id], func(name string, _ map[string]config.Secret) bool { return name != except })
	return nil
}

func (s *ownValueStore) Resolve(_ context.Context, h sandbox.Holder, p *policy.Policy) (list []egress.Secret, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range p.Binds() {
		value, exists := s.values[h.Sandbox][h.Own][b.Name]
		if !exists {
			return nil, errors.New("no value of " + b.Name)
		}
		list = append(list, egress.Secret{Name: b.Name, Value: value.Reveal(), Host: b.Host, Header: b.Header})
	}
	return list, nil
}

func (s *ownValueStore) count() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, names := range s.values {
		n += len(names)
	}
	return n
}

// accessWithHeader returns an access with a header of a fixed value.
func accessWithHeader(t testing.TB, value string) sandbox.Access {
	t.Helper()
	d, fixed, err := policy.FromE2B(nil, nil, nil, policy.Transforms{"a.test": {{"X-Key": value}}})
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Access{
		Net: sandbox.NetPolicy, Documents: []policy.Document{d}, Lists: &sandbox.Lists{},
		Values: map[string]config.Secret{fixed[0].Name: config.Secret(value)},
	}
}

// A sandbox's own values are encrypted before they are used, are found by another process, and are
// removed with the access that bound them.
func TestOwnSecretValues(t *testing.T) {
	gateway, store := &inputRecorder{}, &ownValueStore{values: map[string]map[string]map[string]config.Secret{}}
	with := func(d *lifecycle.Deps) { d.Gateway, d.Sealed = gateway, store }
	r := newRig(t, with)
	ctx := t.Context()
	value := func() string {
		gateway.mu.Lock()
		defer gateway.mu.Unlock()
		if len(gateway.last.Secrets) != 1 {
			t.Fatalf("the gateway got %d secrets, want 1", len(gateway.last.Secrets))
		}
		return gateway.last.Secrets[0].Value
	}
	sb, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: "base", Access: accessWithHeader(t, "canary-one")})
	if err != nil {
		t.Fatal(err)
	}
	if value() != "canary-one" || sb.Access.Values != nil || sb.Access.Own == "" {
		t.Errorf("got %q and %+v", value(), sb.Access)
	}
	row, err := r.store.Get(ctx, sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(row); err != nil || strings.Contains(string(text), "canary") {
		t.Errorf("%v: the row has the value: %s", err, text)
	}

	// Another process has only the row.
	r.close()
	r.open(with)
	if err := incompleteError(r.Reconcile(ctx)); err != nil {
		t.Fatal(err)
	}
	gateway.last = sandbox.Attachment{}
	if err := r.RotateSecrets(ctx, alice.KeyID); err != nil || value() != "canary-one" {
		t.Fatalf("rotation by another process: %v, value %q", err, value())
	}

	// After a failed change, exactly the old values are stored.
	gateway.fail = errors.New("no way")
	if _, err := r.SetAccess(ctx, alice, sb.ID, replaceWith(accessWithHeader(t, "canary-two"))); err == nil {
		t.Fatal("a change without a gateway succeeded")
	}
	gateway.fail = nil
	if err := r.RotateSecrets(ctx, alice.KeyID); err != nil || value() != "canary-one" || store.count() != 1 {
		t.Errorf("rotation after a failed change: %v, value %q, %d values stored", err, value(), store.count())
	}
	// A change that keeps the document keeps its values.
	same := func(a sandbox.Access) (sandbox.Access, error) { a.Allow = append(a.Allow, "b.test"); return a, nil }
	if _, err := r.SetAccess(ctx, alice, sb.ID, same); err != nil || value() != "canary-one" {
		t.Errorf("change that keeps the document: %v, value %q", err, value())
	}
	if got, err := r.SetAccess(ctx, alice, sb.ID, replaceWith(accessWithHeader(t, "canary-three"))); err != nil || value() != "canary-three" || store.count() != 1 || got.Access.Values != nil {
		t.Errorf("change of the document: %v, value %q, %d values stored", err, value(), store.count())
	}
	// An owner cannot name another owner's secrets.
	foreign := accessWithHeader(t, "x")
	foreign.Values, foreign.Own = nil, "own_of_another"
	if _, err := r.SetAccess(ctx, alice, sb.ID, replaceWith(foreign)); err == nil {
		t.Error("values that are not the sandbox's were bound")
	}
	if err := r.Remove(ctx, alice, sb.ID); err != nil || store.count() != 0 {
		t.Errorf("%v: %d outlive the sandbox", err, store.count())
	}

	// The values of a sandbox whose creation failed are removed.
	gateway.fail = errors.New("no way")
	if _, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: "base", Access: accessWithHeader(t, "canary-four")}); err == nil || store.count() != 0 {
		t.Errorf("%v: %d outlive a failed creation", err, store.count())
	}
}

// A request for E2B's open network is not a request for the loosest setting of everything else.
func TestListsKeepDefaultFileLevel(t *testing.T) {
	a := accessWithHeader(t, "canary-one")
	p, _, err := a.Compile(sandbox.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	standard, err := policy.Level("standard")
	if err != nil {
		t.Fatal(err)
	}
	d := p.Document()
	if d.Network.Unlisted != "allow" || d.Isolation != standard.Isolation || len(d.Filesystem.Deny) < len(standard.Filesystem.Deny) || *d.Redact.Patterns != *standard.Redact.Patterns {
		t.Errorf("the policy is %+v", d)
	}
	a.Lists = nil
	if p, _, err = a.Compile(sandbox.Settings{}); err != nil || p.Document().Isolation == standard.Isolation {
		t.Errorf("%v: without lists the policy has the same isolation", err)
	}
}
