package server

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/store"
)

func testStore(t *testing.T) (string, *store.Store) {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return dir, st
}

// compileBindings compiles a policy with these settings for secrets.
func compileBindings(t *testing.T, settings string) *policy.Policy {
	t.Helper()
	d, err := policy.Parse([]byte("policy: v1\nnetwork: {hosts: [{host: a.test, rules: [{do: allow}]}]}\nsecrets: " + settings + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: d})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A sandbox gets the values of its owner, with the limits of the policy, and no other owner gets
// them.
func TestResolveReturnsValuesOfOwner(t *testing.T) {
	dir, st := testStore(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := sealed{secrets.New(secrets.Options{Store: st, Keys: secrets.NewKeyFile(filepath.Join(dir, secrets.KeyFileName))}), func() time.Time { return at }}
	owner, ctx := secrets.Caller{Owner: "k1"}, t.Context()
	for i, name := range []string{"TOKEN", "OTHER"} {
		if _, err := s.vault.Set(ctx, owner, name, fmt.Appendf(nil, "first-value-%d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.vault.Rotate(ctx, owner, "TOKEN", []byte("second-value"), nil); err != nil {
		t.Fatal(err)
	}
	p := compileBindings(t, "{approve: first_use, bind: [{name: TOKEN, host: a.test, header: X-Key, methods: [GET], ttl: 5m, max_uses: 3, approve: true}, {name: OTHER, host: a.test, header: X-Other}]}")
	list, err := s.Resolve(ctx, sandbox.Holder{Owner: "k1", Sandbox: "i1"}, p)
	if err != nil || len(list) != 2 {
		t.Fatalf("Resolve: got %d bindings, error %v, want 2", len(list), err)
	}
	one, other := list[0], list[1]
	if one.Value != "second-value" || !slices.Equal(one.Old, []string{"first-value-0"}) || one.Header != "X-Key" || one.Host != "a.test" || one.Port != 443 {
		t.Errorf("TOKEN: got %+v, want the second value and the first one as old", one)
	}
	if !one.Expires.Equal(at.Add(5*time.Minute)) || one.Uses != 3 || !one.Approve || !one.ApproveFirst || !slices.Equal(one.Methods, []string{"GET"}) {
		t.Errorf("limits of TOKEN: got %+v, want those of the policy", one)
	}
	if other.Name != "OTHER" || other.Value != "first-value-1" || len(other.Old) != 0 {
		t.Errorf("OTHER: got %+v, want its only value", other)
	}
	if _, err := s.Resolve(ctx, sandbox.Holder{Owner: "k2", Sandbox: "i2"}, p); fault.CodeOf(err) != "secret_not_found" || !strings.Contains(fault.HintOf(err), "crannog secret set TOKEN") {
		t.Errorf("another owner: got %v, want secret_not_found with a hint", err)
	}
}

func TestOpenSecretsSelectsKeeper(t *testing.T) {
	dir, st := testStore(t)
	t.Setenv("VAULT_ADDR", "")
	for setting, code := range map[string]string{"": "", "file": "", "Keyring": "secrets_key_invalid", "transit": "secrets_key_invalid"} {
		v, err := openSecrets(Options{StateDir: dir, SecretsKey: setting, SecretsExec: " ; "}, st)
		if (err == nil) != (code == "") || err != nil && fault.CodeOf(err) != code || err == nil && v == nil {
			t.Errorf("secrets_key %q: got %v, want the code %q", setting, err, code)
		}
	}
	if _, err := openSecrets(Options{StateDir: dir, SecretsKey: "transit:transit/crannog"}, st); err == nil {
		t.Error("openSecrets accepted a transit key without VAULT_ADDR")
	}
	t.Setenv("VAULT_ADDR", "http://127.0.0.1:1")
	t.Setenv("VAULT_TOKEN", "token")
	if _, err := openSecrets(Options{StateDir: dir, SecretsKey: "transit:transit/crannog"}, st); err != nil {
		t.Errorf("transit key with VAULT_ADDR: %v", err)
	}
	// Only the listed command lines may run.
	v, err := openSecrets(Options{StateDir: dir, SecretsExec: "/bin/echo value-of-command; /bin/true"}, st)
	if err != nil {
		t.Fatal(err)
	}
	requester := secrets.Caller{Local: true}
	if got, err := v.Resolve(t.Context(), requester, "exec:/bin/echo value-of-command"); err != nil || got.Value.Reveal() != "value-of-command" {
		t.Errorf("listed command: got %v, %v", got, err)
	}
	if _, err := v.Resolve(t.Context(), requester, "exec:/bin/echo another"); err == nil {
		t.Error("Resolve ran a command that the settings do not list")
	}
}
