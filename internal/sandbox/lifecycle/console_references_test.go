package lifecycle_test

import (
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// P42: a session of the web console sees all sandboxes, and cannot name files or variables of the
// server's machine; the machine's user can.
func TestConsoleCannotNameHostResources(t *testing.T) {
	keys, with := newSecretStore(t)
	keys.set("TOKEN", firstValue)
	r := newRig(t, with)
	console := sandbox.Principal{Local: true, Session: "c1"}
	if console.Actor() != "console:c1" || console.OnHost() || !local.OnHost() || alice.OnHost() {
		t.Errorf("the actor of the console is %q, or OnHost is wrong for a principal", console.Actor())
	}
	aliceSandbox := r.create(alice)
	if _, err := r.Get(t.Context(), console, aliceSandbox.ID); err != nil {
		t.Errorf("the console does not see another owner's sandbox: %v", err)
	}
	for name, req := range map[string]sandbox.CreateRequest{
		"workspace": {Workspace: t.TempDir()}, "ephemeral": {Ephemeral: true}, "file": {Access: bindFile("a.test")},
	} {
		req.Template = "base"
		if _, err := r.Create(t.Context(), console, req); fault.KindOf(err) != fault.Denied || fault.CodeOf(err) != "local_only" {
			t.Errorf("%s: got error %v, want local_only", name, err)
		}
	}
	if _, err := r.Create(t.Context(), local, sandbox.CreateRequest{Template: "base", Access: bindFile("a.test")}); err != nil {
		t.Errorf("creation by the local user: %v", err)
	}
	sb, err := r.Create(t.Context(), local, sandbox.CreateRequest{Template: "base", Access: bindFile("a.test")})
	if err != nil {
		t.Fatal(err)
	}
	set := func(caller sandbox.Principal, a sandbox.Access) error {
		_, err := r.SetAccess(t.Context(), caller, sb.ID, func(sandbox.Access) (sandbox.Access, error) { return a, nil })
		return err
	}
	if err := set(console, bindFile("a.test")); err != nil {
		t.Errorf("console keeps an existing binding: %v", err)
	}
	if err := set(console, bindFile("b.test")); fault.CodeOf(err) != "local_only" {
		t.Errorf("console binds a file to another host: got error %v, want local_only", err)
	}
	if err := set(local, bindFile("b.test")); err != nil {
		t.Errorf("the local user changes the binding: %v", err)
	}
}

func bindFile(host string) sandbox.Access {
	d := policy.Document{Policy: "v1"}
	d.Network.Hosts = []policy.Host{{Host: host}}
	d.Secrets.Bind = []policy.Bind{{Name: "TOKEN", From: "file:/etc/hostname", Host: host, Header: "Authorization"}}
	return sandbox.Access{Net: sandbox.NetPolicy, Documents: []policy.Document{d}}
}
