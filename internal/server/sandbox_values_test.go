package server

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/store"
)

func TestOwnValuesBelongToOneSandbox(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	st, err := store.Open(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	s := sealed{secrets.New(secrets.Options{Store: st, Keys: secrets.NewKeyFile(filepath.Join(dir, secrets.KeyFileName))}), time.Now}
	d, fixed, err := policy.FromE2B(nil, nil, nil, policy.Transforms{"a.test": {{"X-Key": "canary-Zq1", "X-Team": "blue"}}})
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: d})
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]config.Secret{}
	for _, f := range fixed {
		values[f.Name] = config.Secret(f.Value)
	}
	if err := s.Keep(ctx, "i1", "own_A", values); err != nil {
		t.Fatal(err)
	}
	h := sandbox.Holder{Owner: "k1", Sandbox: "i1", Own: "own_A"}
	list, err := s.Resolve(ctx, h, p)
	if err != nil || len(list) != 2 {
		t.Fatalf("Resolve: got %d bindings, error %v, want 2", len(list), err)
	}
	for _, bound := range list {
		// A value that is too short to redact is accepted, and a binding lasts as long as its
		// sandbox.
		short := bound.Header == "X-Team"
		if bound.Plain != short || short != (bound.Value == "blue") || !bound.Expires.IsZero() || bound.Host != "a.test" {
			t.Errorf("Resolve: got the binding %+v, want one for a.test that does not expire", bound)
		}
	}
	// Neither the owner nor other keys can list or name the values.
	for _, requester := range []secrets.Caller{{Owner: "k1"}, {Local: true}} {
		if infos, err := s.vault.List(ctx, requester); err != nil || len(infos) != 0 {
			t.Errorf("List of %+v: got %v (%v), want no value", requester, infos, err)
		}
		if _, err := s.vault.Resolve(ctx, requester, "own_A"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("Resolve of %+v: got %v, want NotFound", requester, err)
		}
	}
	for _, other := range []sandbox.Holder{{Owner: "k1", Sandbox: "i2", Own: "own_A"}, {Owner: "k1", Sandbox: "i1"}} {
		if _, err := s.Resolve(ctx, other, p); err == nil {
			t.Errorf("Resolve for %+v returned the values of another sandbox", other)
		}
	}
	// The rotation of the key for all secrets includes these values.
	if n, err := s.vault.RotateKey(ctx, secrets.Caller{Local: true}); err != nil || n != 1 {
		t.Errorf("RotateKey: moved %d secrets (%v), want 1", n, err)
	}
	if _, err := s.Resolve(ctx, h, p); err != nil {
		t.Error(err)
	}
	big := map[string]config.Secret{"a": config.Secret(strings.Repeat("x", 20<<10)), "b": config.Secret(strings.Repeat("y", 20<<10))}
	if err := s.Keep(ctx, "i1", "own_B", big); fault.CodeOf(err) != "values_too_large" {
		t.Errorf("values of 40 KiB: got %v, want values_too_large", err)
	}
	if err := s.Keep(ctx, "i1", "own_C", values); err != nil {
		t.Fatal(err)
	}
	if err := s.Drop(ctx, "i1", "own_C"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve(ctx, h, p); err == nil {
		t.Error("Resolve returned values that Drop removed")
	}
	h.Own = "own_C"
	if _, err := s.Resolve(ctx, h, p); err != nil {
		t.Error(err)
	}
}
