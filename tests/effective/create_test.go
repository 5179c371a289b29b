package effective_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
)

// workspaceTree creates a workspace with files to hide and to protect.
func workspaceTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{".env": "TOKEN=canary", ".git/hooks/pre-commit": "#!/bin/sh", "main.go": "package main"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// hostPolicy has an allowed host, and one that is denied by name.
const hostPolicy = `policy: v1
name: task
network:
  unlisted: deny
  hosts:
    - {host: allowed.example, rules: [{do: allow}]}
    - {host: denied.example, rules: [{do: deny}]}
`

// withPolicy gives an instance a network under another policy.
func (r *rig) withPolicy(document string) func(*engine.Spec) error {
	return func(spec *engine.Spec) error {
		d, err := policy.Parse([]byte(document))
		if err != nil {
			return err
		}
		p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: d})
		if err != nil {
			return err
		}
		c, err := gateway.Connect(r.t.Context(), r.state, gateway.Options{})
		if err != nil {
			return err
		}
		r.t.Cleanup(func() { c.Close() })
		records, err := os.OpenFile(filepath.Join(r.t.TempDir(), "records"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer records.Close()
		sandboxEnd, _, err := c.Attach(r.t.Context(), gateway.Attachment{Sandbox: "other" + spec.ID[:8], Policy: p.Layers(), Record: records})
		if err != nil {
			return err
		}
		spec.Egress = engine.Packets(sandboxEnd)
		return nil
	}
}

// leaky is a case whose fault may go unnoticed. A port that is silent for half a second counts as
// closed, and so does an open port behind a delayed network.
const leaky = "a network that lets all ports through"

// P23: a sandbox whose instance differs from the request is never ready, and nothing of it is left.
// Control: an unchanged instance.
func TestCreateRejectsDifferentInstance(t *testing.T) {
	r := newRig(t)
	changeSpecs := func(do func(*engine.Spec)) func(*engine.Spec) error {
		return func(spec *engine.Spec) error { do(spec); return nil }
	}
	withWorkspace := []crannog.CreateOption{crannog.Workspace(workspaceTree(t))}
	withReadOnly := []crannog.CreateOption{withWorkspace[0], crannog.Policy("policy: v1\nname: task\nfilesystem: {read_only: ['**/.git/hooks/**']}\n")}
	withNetwork := []crannog.CreateOption{crannog.Policy(hostPolicy)}
	strictWrites := []crannog.CreateOption{crannog.Policy("policy: v1\nname: task\nlevel: strict\nfilesystem: {write: [/tmp]}\n")}
	for _, c := range []struct {
		name   string
		opts   []crannog.CreateOption
		change func(*engine.Spec) error
		want   string
	}{
		{"a route outside", nil, r.addNetwork(), "there is a route out"},
		{"a hidden file is shown", withWorkspace, changeSpecs(func(s *engine.Spec) { s.Absent = nil }), "the hidden file /workspace/.env can be read"},
		{"a read-only directory can be written", withReadOnly, changeSpecs(func(s *engine.Spec) { s.ReadOnly = nil }), "directory /workspace/.git/hooks"},
		{"a sealed directory can be written", strictWrites, changeSpecs(func(s *engine.Spec) { s.ReadOnly = nil }), "directory /workspace"},
		{"more memory", nil, changeSpecs(func(s *engine.Spec) { s.Limits.MemoryBytes *= 2 }), "bytes of memory, more than the limit"},
		{"more disk", nil, changeSpecs(func(s *engine.Spec) { s.Limits.DiskBytes *= 2 }), "bytes of disk, more than the limit"},
		{"more files", nil, changeSpecs(func(s *engine.Spec) { s.Limits.DiskInodes *= 2 }), "files, where the limit is"},
		{"more processes", nil, changeSpecs(func(s *engine.Spec) { s.Limits.PIDs *= 2 }), "processes, more than the limit"},
		{"an attachment without a gateway", withNetwork, r.addNetwork(), "the allowed name allowed.example has no address"},
		{"a network that lets all through", withNetwork, r.withPolicy("policy: v1\nname: other\nlevel: minimal\n"), "the name denied.example has the address"},
		{"a network that lets nothing through", withNetwork, r.withPolicy("policy: v1\nname: other\nnetwork: {unlisted: deny}\n"), "the allowed name allowed.example has no address"},
		{"a network that lets another port through", withNetwork, r.withPolicy("policy: v1\nname: other\nnetwork: {unlisted: deny, hosts: [{host: allowed.example, ports: [9], rules: [{do: allow}]}]}\n"),
			"no connection to the allowed allowed.example:443"},
		{leaky, withNetwork, r.withPolicy("policy: v1\nname: other\nnetwork: {unlisted: deny, hosts: [{host: allowed.example, ports: [1-65535], rules: [{do: allow}]}]}\n"),
			"the closed allowed.example:9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := *r
			r.t = t
			r.engine.changeSpecs(c.change)
			sb, err := r.create(c.opts...)
			for try := 1; err == nil && c.name == leaky && try < 3; try++ {
				t.Logf("try %d: the fault went unnoticed", try)
				if err := sb.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
				sb, err = r.create(c.opts...)
			}
			r.engine.changeSpecs(nil)
			r.requireNotEffective(err, c.want)
			r.requireOnly()
			sb = r.must(c.opts...)
			if err := sb.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
