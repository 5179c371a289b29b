package policy_test

import (
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

func TestParseTarget(t *testing.T) {
	for _, c := range []struct {
		method, target, host, path string
		port                       int
	}{
		{"get", "Example.COM/a", "example.com", "/a", 443},
		{"GET", "http://example.com:8080/", "example.com", "/", 8080},
		{"CONNECT", "example.com", "example.com", "", 443},
		{"connect", "EXAMPLE.com:22", "example.com", "", 22},
		{"CONNECT", "[2606:4700::1]:443", "2606:4700::1", "", 443},
		{"CONNECT", "not a name:1", "not a name", "", 1}, // it is denied later
	} {
		r, err := policy.ParseTarget(c.method, c.target)
		if err != nil || r.Host != c.host || r.Port != c.port || r.Path != c.path {
			t.Errorf("ParseTarget(%s, %s): got %+v, %v, want host %s, port %d, path %s", c.method, c.target, r, err, c.host, c.port, c.path)
		}
	}
	for _, c := range [][2]string{{"CONNECT", "x:0"}, {"CONNECT", "x:70000"}, {"CONNECT", ":1"}, {"GET", "https://"}, {"GET", "ftp://example.com/"}} {
		if r, err := policy.ParseTarget(c[0], c[1]); fault.CodeOf(err) != "request_invalid" {
			t.Errorf("ParseTarget(%s, %s): got %+v, %v, want request_invalid", c[0], c[1], r, err)
		}
	}
}

// What explain shows for an address is what a connection would get.
func TestForeseeAppliesTheFloorToAddresses(t *testing.T) {
	p := compile(t, ofTask(parse(t, "level: minimal\nnetwork: {unlisted: allow}")))
	for target, want := range map[string]string{
		"169.254.169.254:80": policy.RuleAddress, "127.0.0.1:80": policy.RuleAddress, "10.0.0.1:80": policy.RulePrivate, "93.184.216.34:443": "", "example.com:443": "",
	} {
		r, err := policy.ParseTarget("CONNECT", target)
		if err != nil {
			t.Fatal(err)
		}
		d, steps := p.Foresee(r)
		denied := d.Effect == egress.Deny
		if denied != (want != "") || denied && (d.Rule != want || steps[len(steps)-1].Rule != want) {
			t.Errorf("%s: got %+v, want denied by %q", target, d, want)
		}
	}
}

func TestLineFindsFields(t *testing.T) {
	text := []byte("policy: v1\nnetwork:\n  unlisted: deny\n  hosts:\n    - host: a.test\n")
	for field, want := range map[string]int{"policy": 1, "network.unlisted": 3, "network.hosts[0].host": 5, "network.writes": 3} {
		if got := policy.Line(text, field); got != want {
			t.Errorf("line of %s: got %d, want %d", field, got, want)
		}
	}
	if got := policy.Line([]byte("{"), "policy"); got != 0 {
		t.Errorf("line in a text that is no document: got %d, want 0", got)
	}
}
