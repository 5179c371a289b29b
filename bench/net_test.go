package main

import (
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

// TestPolicyDecryptsAsPathsAreNamed checks that a path that is named as passed on is not decrypted,
// and the reverse. Otherwise figures would have a wrong name.
func TestPolicyDecryptsAsPathsAreNamed(t *testing.T) {
	d, err := policy.Parse([]byte(netPolicy(manyRules)))
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: d})
	if err != nil {
		t.Fatal(err)
	}
	for host, decrypted := range map[string]bool{hostSplice: false, hostOpen: true, hostSecret: true, hostTen: true, hostThousand: true} {
		c := p.Connect(host, 443)
		if c.Effect != egress.Allow || c.Inspect != decrypted {
			t.Errorf("connect to %s: got %+v, want it allowed, and decrypted as its name says", host, c)
		}
		for _, method := range []string{"GET", "POST"} {
			if d, _ := p.Request(policy.Request{Host: host, Port: 443, Method: method, Path: "/answer", TLS: true}); d.Effect != egress.Allow {
				t.Errorf("%s to %s: got %+v, want it allowed", method, host, d)
			}
		}
	}
	if c := p.Connect("other.test", 443); c.Effect != egress.Deny {
		t.Errorf("an unlisted host: %+v", c)
	}
	for _, b := range d.Network.Hosts {
		if want := map[string]int{hostTen: usualRules, hostThousand: manyRules}[b.Host]; want > 0 && len(b.Rules) != want {
			t.Errorf("%s has %d rules", b.Host, len(b.Rules))
		}
	}
}

func TestWithin(t *testing.T) {
	s := section{Unit: "µs", Rows: []row{{Name: "direct", P50: 100, P99: new(200.0)}, {Name: "sandbox", P50: 300, P99: new(500.0)}, {Name: "near", P50: 350, P99: new(1400.0)}, {Name: "far", P50: 351, P99: new(1401.0)}}}
	s.within("direct", "sandbox", 250, 1000, "near", "far")
	if !s.find("near").Reached || s.find("far").Reached {
		t.Errorf("got the rows %+v, want near within its target and far above it", s.Rows)
	}
	want := []string{
		"near: p50 +250 µs against direct, +50 against sandbox; p99 ≤ 2× + 1000, which is 1400: reached",
		"far: p50 +251 µs against direct, +51 against sandbox; p99 ≤ 2× + 1000, which is 1400: missed",
	}
	if len(s.Notes) != 2 || s.Notes[0] != want[0] || s.Notes[1] != want[1] {
		t.Errorf("got the notes %q, want %q", s.Notes, want)
	}
}
