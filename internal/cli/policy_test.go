package cli

import (
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
)

func TestRequestOf(t *testing.T) {
	for _, c := range []struct {
		method, target string
		want           policy.Request
	}{
		{"get", "Example.COM", policy.Request{Host: "example.com", Port: 443, Method: "GET", Path: "/", TLS: true}},
		{"POST", "http://a.example:8080/x", policy.Request{Host: "a.example", Port: 8080, Method: "POST", Path: "/x"}},
		{"CONNECT", "a.example:22", policy.Request{Host: "a.example", Port: 22}},
		{"connect", "a.example", policy.Request{Host: "a.example", Port: 443}},
		{"CONNECT", "[2001:db8::1]:22", policy.Request{Host: "2001:db8::1", Port: 22}},
	} {
		if got, err := requestOf(c.method, c.target); err != nil || got != c.want {
			t.Errorf("requestOf(%s, %s): got %+v, error %v", c.method, c.target, got, err)
		}
	}
	for _, c := range [][2]string{
		{"CONNECT", "a.example:0"}, {"CONNECT", "a.example:65536"}, {"CONNECT", ":22"}, {"GET", "ftp://a.example/"}, {"GET", "https://u:p@a.example/"}, {"GET", "https:///"},
	} {
		if got, err := requestOf(c[0], c[1]); err == nil {
			t.Errorf("requestOf(%s, %s): got %+v, want an error", c[0], c[1], got)
		}
	}
}

// --level and --net accept every value that completion offers.
func TestCompletedLevelsAndNetworksAreAccepted(t *testing.T) {
	for _, l := range policy.Levels() {
		if _, err := (&accessFlags{level: l}).access(); err != nil {
			t.Error(err)
		}
	}
	for _, n := range nets {
		if _, err := (&accessFlags{net: n[0]}).access(); err != nil {
			t.Error(err)
		}
	}
	for _, f := range []accessFlags{
		{level: "king"}, {net: "lan"}, {net: "none", allow: []string{"a.example"}}, {net: "none", ask: true}, {ask: true, level: "strict"},
		{allow: []string{"https://a.example"}}, {allow: []string{""}}, {policy: "/nonexistent"},
	} {
		if got, err := f.access(); err == nil {
			t.Errorf("access of %+v: got %+v, want an error", f, got)
		}
	}
	if got, err := (&accessFlags{ask: true, allow: []string{"a.example"}}).access(); err != nil || got.Net != "policy" || len(got.Allow) != 1 {
		t.Errorf("access: got %+v, error %v", got, err)
	}
}
