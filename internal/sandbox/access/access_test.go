package access_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/access"
)

const value = "a value that must not be seen"

// fakeSealed resolves each binding to one value.
type fakeSealed struct{ kept map[string]config.Secret }

func (v *fakeSealed) Resolve(_ context.Context, _ sandbox.Holder, p *policy.Policy) ([]egress.Secret, error) {
	var list []egress.Secret
	for _, b := range p.Document().Secrets.Bind {
		list = append(list, egress.Secret{Name: b.Name, Value: value})
	}
	return list, nil
}

func (v *fakeSealed) Keep(_ context.Context, _, _ string, values map[string]config.Secret) error {
	v.kept = values
	return nil
}

func (v *fakeSealed) Drop(context.Context, string, string) error { v.kept = nil; return nil }

// rows holds one row.
type rows struct{ row sandbox.Row }

func (r rows) Get(_ context.Context, id string) (sandbox.Row, error) {
	if r.row.ID != id {
		return sandbox.Row{}, sandbox.Unknown(id)
	}
	return r.row, nil
}

func boundAccess(t *testing.T) sandbox.Access {
	t.Helper()
	d, err := policy.Parse([]byte("policy: v1\nnetwork:\n  hosts:\n    - host: api.example.com\nsecrets:\n  bind:\n    - name: KEY\n      host: api.example.com\n      header: Authorization\n"))
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Access{Level: "standard", Net: sandbox.NetPolicy, Documents: []policy.Document{d}}
}

func newService(t *testing.T, known func(string) (string, bool), row sandbox.Row) *access.Service {
	t.Helper()
	return access.New(access.Deps{
		Rows: rows{row}, Sealed: &fakeSealed{}, Known: known, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
}

// TestBoundValuesAreRedacted checks that the values which a policy binds are redacted before any
// other component gets them, and also in events that are read after the end of the sandbox.
func TestBoundValuesAreRedacted(t *testing.T) {
	r := sandbox.Row{Sandbox: sandbox.Sandbox{ID: "one", Access: boundAccess(t)}}
	known := true
	s := newService(t, func(string) (string, bool) { return "", known }, r)
	p, err := s.Compile(r.Access)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Resolve(t.Context(), r, p)
	if err != nil || len(a.Secrets) != 1 || a.Secrets[0].Value != value {
		t.Fatalf("Resolve: got secrets %+v, %v; want the bound value", a.Secrets, err)
	}
	wantRedacted := func(when string) {
		t.Helper()
		redactEntry, err := s.EntryRedactor(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		if got := redactEntry("x " + value + " y"); got == "x "+value+" y" {
			t.Errorf("%s: the value is not redacted in %q", when, got)
		}
	}
	wantRedacted("while it runs")
	s.Retain("one")
	s.Forget("one")
	known = false
	wantRedacted("while it ends")
	s.Release("one")
	wantRedacted("by its row alone") // like another process does
	if _, err := s.EntryRedactor(t.Context(), "other"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("redactor of an unknown sandbox: got error %v, want NotFound", err)
	}
	if got := access.Variables(a.Secrets, map[string]string{"A": "b"}); got["KEY"] != access.Placeholder("KEY") || got["A"] != "b" {
		t.Errorf("variables: got %v, want A and a placeholder for KEY", got)
	}
}

// TestEndLeavesNoRedactor checks that no redactor is left if a sandbox ends while its values are
// being resolved.
func TestEndLeavesNoRedactor(t *testing.T) {
	r := sandbox.Row{Sandbox: sandbox.Sandbox{ID: "one", Access: boundAccess(t)}}
	var ended atomic.Bool
	s := newService(t, func(string) (string, bool) { return "", !ended.Load() }, r)
	p, err := s.Compile(r.Access)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		ended.Store(false)
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := s.Resolve(t.Context(), r, p); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() {
			ended.Store(true)
			s.Forget("one")
		})
		group.Wait()
		if s.Redactor("one") != nil {
			t.Fatal("the redactor of an ended sandbox still exists")
		}
	}
	ended.Store(false)
	if _, err := s.Resolve(t.Context(), r, p); err != nil || s.Redactor("one") == nil {
		t.Errorf("redactor of a running sandbox is missing: %v", err)
	}
}

// TestMissingDependenciesAreReported checks that requests which need a gateway, a secret store or
// approvers fail if the service has none.
func TestMissingDependenciesAreReported(t *testing.T) {
	s := access.New(access.Deps{Known: func(string) (string, bool) { return "", true }, Log: slog.New(slog.DiscardHandler)})
	linked := sandbox.Row{Sandbox: sandbox.Sandbox{ID: "one", Access: boundAccess(t)}}
	p, err := s.Compile(linked.Access)
	if err != nil {
		t.Fatal(err)
	}
	_, plan := s.Plan(t.Context(), linked, p)
	_, resolve := s.Resolve(t.Context(), linked, p)
	_, attach := s.Attach(t.Context(), &sandbox.Attachment{Sandbox: "one"})
	_, ask := s.Ask(t.Context(), egress.ApprovalRequest{})
	offline := linked
	offline.Access.Net = sandbox.NetNone
	_, unused := s.Plan(t.Context(), offline, p)
	for code, err := range map[string]error{
		"network_unavailable": plan, "secrets_unavailable": resolve, "nobody_to_ask": ask, "secrets_without_network": unused,
	} {
		if fault.CodeOf(err) != code {
			t.Errorf("got error %v, want %s", err, code)
		}
	}
	if fault.CodeOf(attach) != "network_unavailable" {
		t.Errorf("Attach without a gateway: got error %v, want network_unavailable", attach)
	}
	seal := s.Seal(t.Context(), "one", sandbox.Access{Values: map[string]config.Secret{"A": "b"}})
	if fault.CodeOf(seal) != "secrets_unavailable" {
		t.Errorf("Seal without a secret store: got error %v, want secrets_unavailable", seal)
	}
}
