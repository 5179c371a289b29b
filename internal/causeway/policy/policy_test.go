package policy_test

import (
	"testing"

	"github.com/crannog/crannog/internal/causeway"
	"github.com/crannog/crannog/internal/causeway/policy"
)

func TestFirst(t *testing.T) {
	d, err := policy.Parse([]byte("policy: v1\nnetwork:\n  hosts:\n    - host: api.github.com\n      rules: [{id: r, methods: [GET], paths: [/repos/**], do: allow}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: d})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := p.Request(policy.Request{Host: "api.github.com", Port: 443, Method: "GET", Path: "/repos/x", TLS: true})
	if got.Effect != causeway.Allow {
		t.Fatal(got)
	}
	t.Logf("%+v", p.Connect("api.github.com", 443))
	t.Logf("%+v", p.Connect("example.com", 443))
}
