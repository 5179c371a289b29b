package policy_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

// Every accepted document compiles or returns an error, and has the same meaning after it is
// written and parsed again.
func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("testdata/task.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	for _, name := range policy.Levels() {
		level, err := policy.LevelText(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(level)
	}
	f.Add([]byte(`{"policy":"v1","network":{"hosts":[{"addresses":["10.0.0.0/8"],"ports":[1,"2-3"],"tunnel":true,"rules":[{"do":"allow","limits":{"requests":1,"per":"1s"}}]}]}}`))
	f.Add([]byte("policy: v1\na: &a [x,x]\nb: [*a,*a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := policy.Parse(text)
		if err != nil {
			if fault.CodeOf(err) != "policy_invalid" {
				t.Fatalf("Parse returned %v, want policy_invalid", err)
			}
			return
		}
		out, err := yaml.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		back, err := policy.Parse(out)
		if err != nil {
			t.Fatalf("Parse rejects a document that was written by Marshal: %v\n%s", err, out)
		}
		a, _, err := policy.Compile(ofTask(d))
		b, _, errBack := policy.Compile(ofTask(back))
		if (err == nil) != (errBack == nil) {
			t.Fatalf("Compile returned %v, and after writing and parsing %v", err, errBack)
		}
		if err != nil {
			return
		}
		if a.Digest() != b.Digest() || len(policy.Widen(a, b)) > 0 {
			t.Fatalf("writing and parsing changed the policy\n%s\n%s", text, out)
		}
	})
}

// A decision is always allow, ask or deny, names a rule, and is the one that Explain returns.
func FuzzRequest(f *testing.F) {
	p := sample(f, "light")
	f.Add("api.github.com", 443, "GET", "/repos/acme/pay/issues", true, false)
	f.Add("raw.githubusercontent.com", 443, "GET", "/%61cme/x", true, true)
	f.Add("evil\x00.github.com", 443, "GET", "/", true, false)
	f.Add("::1", 80, "POST", "/..", false, false)
	f.Fuzz(func(t *testing.T, host string, port int, method, path string, tls, ws bool) {
		r := policy.Request{Host: host, Port: port, Method: method, Path: path, TLS: tls, WebSocket: ws}
		d, _ := p.Request(r)
		if d.Rule == "" || d.Layer == "" || d.Effect != egress.Allow && d.Effect != egress.Ask && d.Effect != egress.Deny {
			t.Fatalf("Request(%+v) = %+v, want an effect, a rule and a layer", r, d)
		}
		if method != "" {
			if e, _ := p.Explain(r); e != d {
				t.Fatalf("Request(%+v) = %+v, but Explain returns %+v", r, d, e)
			}
		}
		c := p.Connect(host, port)
		if c.Effect == egress.Deny && !c.Tunnel && d.Effect != egress.Deny {
			t.Fatalf("Request(%+v) = %+v, but its connection is denied by %s", r, d, c.Rule)
		}
		if c.Effect != egress.Deny && !p.Reachable(host) {
			t.Fatalf("a connection to %s:%d is %s, but the host is not reachable", host, port, c.Effect)
		}
		if d.Effect != egress.Deny && (strings.Contains(path, "..") && strings.Contains(path, "/../") || strings.ContainsAny(host, "\x00@%/")) {
			t.Fatalf("Request(%+v) = %+v for an ambiguous host or path, want deny", r, d)
		}
	})
}

// thousandRules returns a policy of 1,000 rules, distributed over blocks for that many hosts.
func thousandRules(b *testing.B, hosts int) *policy.Policy {
	d := policy.Document{Policy: "v1", Level: "light"}
	for i := range hosts {
		h := policy.Host{Host: fmt.Sprintf("h%d.example.com", i)}
		for j := range 1000 / hosts {
			do := egress.Allow
			if j%10 == 9 {
				do = egress.Deny
			}
			h.Rules = append(h.Rules, policy.Rule{Methods: []string{"GET", "POST"}, Paths: []string{fmt.Sprintf("/repos/acme/p%d/**", j)}, Do: do})
		}
		d.Network.Hosts = append(d.Network.Hosts, h)
	}
	return compile(b, ofTask(d))
}

func BenchmarkRequest(b *testing.B) {
	for _, hosts := range []int{250, 20, 1} {
		p := thousandRules(b, hosts)
		r := policy.Request{Host: fmt.Sprintf("h%d.example.com", hosts-1), Port: 443, Method: "GET", Path: "/repos/acme/p1/issues/7", TLS: true}
		if d, _ := p.Request(r); d.Effect != egress.Allow {
			b.Fatalf("Request = %+v, want allow", d)
		}
		b.Run(fmt.Sprintf("1000-rules-%d-hosts", hosts), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Request(r)
			}
		})
	}
	p := thousandRules(b, 250)
	b.Run("denied", func(b *testing.B) {
		for b.Loop() {
			p.Request(policy.Request{Host: "h7.example.com", Port: 443, Method: "GET", Path: "/other", TLS: true})
		}
	})
	b.Run("connect", func(b *testing.B) {
		for b.Loop() {
			p.Connect("h7.example.com", 443)
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	text, err := os.ReadFile("testdata/task.yaml")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		d, err := policy.Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := policy.Compile(ofTask(d)); err != nil {
			b.Fatal(err)
		}
	}
}
