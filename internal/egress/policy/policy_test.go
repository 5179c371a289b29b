package policy_test

import (
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

func parse(t testing.TB, text string) policy.Document {
	t.Helper()
	d, err := policy.Parse([]byte("policy: v1\n" + text))
	if err != nil {
		t.Fatalf("Parse: %v\nin\n%s", err, text)
	}
	return d
}

func compile(t testing.TB, layers ...policy.Layer) *policy.Policy {
	t.Helper()
	p, _, err := policy.Compile(layers...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func task(t testing.TB, text string) *policy.Policy {
	t.Helper()
	return compile(t, policy.Layer{Kind: policy.LayerTask, Document: parse(t, text)})
}

// sample returns the reference page's document under a level.
func sample(t testing.TB, level string) *policy.Policy {
	t.Helper()
	text, err := os.ReadFile("testdata/task.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := policy.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	d.Level = level
	return compile(t, policy.Layer{Kind: policy.LayerTask, Document: d})
}

// decide decides about "METHOD url", or about "host:port" as a connection.
func decide(t testing.TB, p *policy.Policy, s string) egress.Decision {
	t.Helper()
	text := "cases: [{expect: allow, "
	if strings.Contains(s, " ") {
		text += "request: " + quote(s) + "}]"
	} else {
		text += "connect: " + quote(s) + "}]"
	}
	r, err := policy.RunCases(p, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r[0].Got
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func TestDecisionsOfEachLevel(t *testing.T) {
	order := policy.Levels()
	if got := strings.Join(order, " "); got != "strict standard light minimal" {
		t.Fatalf("the levels are %s, want strict standard light minimal", got)
	}
	for _, c := range []struct{ request, want string }{
		{"GET https://api.github.com/repos/acme/pay/issues", "allow allow allow allow"},
		{"POST https://api.github.com/repos/acme/pay/pulls", "ask ask ask ask"},
		{"GET https://api.github.com/repos/acme/pay/hooks/1", "deny deny deny deny"},
		{"GET https://api.github.com/user", "deny deny deny deny"},
		{"POST https://api.openai.com/v1/responses", "ask allow allow allow"},
		{"GET https://objects.githubusercontent.com/x", "allow allow allow allow"},
		{"GET https://raw.githubusercontent.com/acme/x", "allow allow allow allow"},
		{"GET https://raw.githubusercontent.com/evil/x", "deny deny deny deny"},
		{"GET https://example.com/", "deny ask allow allow"},
		{"POST https://example.com/", "deny ask ask allow"},
		{"GET wss://example.com/", "deny deny ask allow"},
		{"db.internal.acme.test:5432", "deny deny ask ask"},
		{"db.internal.acme.test:443", "deny deny deny deny"},
		{"93.184.216.34:443", "deny deny deny allow"},
	} {
		var got []string
		for _, level := range order {
			request := c.request
			if strings.Contains(request, "wss") {
				d, _ := sample(t, level).Request(policy.Request{Host: "example.com", Port: 443, Method: "GET", Path: "/", TLS: true, WebSocket: true})
				got = append(got, string(d.Effect))
				continue
			}
			got = append(got, string(decide(t, sample(t, level), request).Effect))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s, want %s", c.request, s, c.want)
		}
	}
}

// A decision names its rule and layer, and a change of the policy that would allow it.
func TestDecisionNamesRuleLayerAndFix(t *testing.T) {
	p := sample(t, "strict")
	q := sample(t, "standard")
	for _, c := range []struct {
		p                *policy.Policy
		request          string
		effect           egress.Effect
		rule, layer, fix string
	}{
		{p, "GET https://api.github.com/repos/acme/pay/x", "allow", "host:api.github.com/read-issues", "task", ""},
		{p, "POST https://api.openai.com/v1/responses", "ask", "network.writes", "level", "crannog approve"},
		{p, "GET https://example.com/", "deny", "network.unlisted", "level", "--allow example.com"},
		{p, "GET https://example.com:8443/", "deny", "network.unlisted", "level", "--allow example.com:8443"},
		{p, "GET https://api.github.com/user", "deny", "host:api.github.com", "task", `policy: rule for api.github.com: {methods: [GET], paths: ["/user"], do: allow}`},
		{p, "GET https://api.github.com:8443/user", "deny", "host:api.github.com", "task", "--allow api.github.com:8443"},
		{p, "GET https://api.github.com/repos/a/b/hooks/1", "deny", "host:api.github.com/no-hooks", "task", ""},
		{p, "db.internal.acme.test:5432", "deny", "network.tunnels", "level", "--level light"},
		{p, "GET https://api.github.com/repos/acme/../x", "deny", "floor.path", "floor", "send the path without escapes of . / % and without empty, . or .. segments"},
		{p, "GET http://api.github.com:443/repos", "deny", "floor.plain-http", "floor", "use https://"},
		{p, "CONNECT https://api.github.com/repos", "deny", "floor.method", "floor", ""},
		{p, "GET https://API.github.com/repos/acme/pay/x", "deny", "floor.name", "floor", ""},
		{p, "GET https://api.github.com./repos/acme/pay/x", "deny", "floor.name", "floor", ""},
		{p, "GET https://203.0.113.9/", "deny", "network.addresses", "level", "--allow 203.0.113.9"},
		{q, "GET https://example.com/", "ask", "network.unlisted", "level", "crannog approve"},
	} {
		d := decide(t, c.p, c.request)
		if d.Effect != c.effect || d.Rule != c.rule || d.Layer != c.layer || d.Fix != c.fix {
			t.Errorf("%s:\n got %s %s %s %q\nwant %s %s %s %q", c.request, d.Effect, d.Rule, d.Layer, d.Fix, c.effect, c.rule, c.layer, c.fix)
		}
		if (d.Effect == "allow") != (d.Reason == "") && d.Layer != "floor" {
			t.Errorf("%s: the reason of %s is %q", c.request, d.Effect, d.Reason)
		}
		if d.Policy != c.p.Digest() {
			t.Errorf("%s: the policy is %q, want its digest", c.request, d.Policy)
		}
	}
}

// A suggested fix must have the promised effect.
func TestSuggestedFixesWork(t *testing.T) {
	d := parse(t, "level: strict\nnetwork: {hosts: [{host: a.test, rules: [{methods: [GET], paths: [/x], do: allow}]}]}")
	allow := func(hosts ...string) *policy.Policy {
		more, err := policy.Hosts(hosts...)
		if err != nil {
			t.Fatal(err)
		}
		return compile(t, policy.Layer{Kind: policy.LayerTask, Document: d}, policy.Layer{Kind: policy.LayerTask, Document: more})
	}
	for _, request := range []string{"GET https://example.com/", "GET https://example.com:8443/", "GET https://a.test:8443/"} {
		before := decide(t, allow(), request)
		flag, ok := strings.CutPrefix(before.Fix, "--allow ")
		if !ok || before.Effect != "deny" {
			t.Fatalf("%s: got %+v, want deny with a fix --allow", request, before)
		}
		after := allow(flag)
		if got := decide(t, after, request); got.Effect != "allow" {
			t.Errorf("%s: after %s the decision is %s by %s, want allow", request, before.Fix, got.Effect, got.Rule)
		}
		if got := decide(t, after, "GET https://a.test/x"); got.Effect != "allow" {
			t.Errorf("%s removes a permission: %+v", before.Fix, got)
		}
	}
}

func TestConnectInspectsOnlyIfNeeded(t *testing.T) {
	const light = "level: light\nnetwork: {hosts: [" +
		"{host: plain.test, rules: [{do: allow}]}, {host: asks.test, rules: [{do: ask}]}," +
		"{host: paths.test, rules: [{paths: [/a], do: allow}]}, {host: methods.test, rules: [{methods: [GET], do: allow}]}," +
		"{host: counted.test, rules: [{do: allow, limits: {requests: 5, per: 1m}}]}, {host: quiet.test, websocket: deny, rules: [{do: allow}]}," +
		"{host: github.com, rules: [{do: allow}]}, {host: repo.test, rules: [{do: allow}]}, {host: sealed.test, rules: [{do: allow}]}," +
		"{host: sized.test, rules: [{do: allow, limits: {bytes: 5, connections: 2}}]}]}\n" +
		"git: {remotes: [{host: repo.test, repo: a/b}]}\n" +
		"secrets: {bind: [{name: A, host: sealed.test, header: X-Key}]}\n"
	p := task(t, light)
	for host, want := range map[string]bool{
		"plain.test": false, "asks.test": false, "sized.test": false,
		"paths.test": true, "methods.test": true, "counted.test": true, "quiet.test": true,
		"github.com": true, "repo.test": true, "sealed.test": true, "unlisted.test": true,
	} {
		c := p.Connect(host, 443)
		if c.Inspect != want || c.Tunnel {
			t.Errorf("Connect(%s) = %+v, want Inspect %v and no tunnel", host, c, want)
		}
	}
	if c := p.Connect("asks.test", 443); c.Effect != egress.Ask {
		t.Errorf("a connection that is not inspected and whose rule asks: %+v, want ask", c)
	}
	if c := p.Connect("sized.test", 443); c.Limits.Bytes != 5 || c.Limits.Connections != 2 || c.Limits.Rule != "host:sized.test/rule-1" {
		t.Errorf("the limits of a connection are %+v, want 5 bytes and 2 connections", c.Limits)
	}
	// If tunnels are denied, all TLS is decrypted.
	for _, level := range []string{"strict", "standard"} {
		if c := task(t, "level: "+level+"\nnetwork: {hosts: [{host: plain.test, rules: [{do: allow}]}]}").Connect("plain.test", 443); !c.Inspect {
			t.Errorf("level %s does not decrypt a connection: %+v", level, c)
		}
	}
	if c := task(t, "level: minimal").Connect("anything.test", 443); c.Inspect || c.Tunnel || c.Effect != egress.Allow {
		t.Errorf("Connect under minimal = %+v, want allow without inspection", c)
	}
}

func TestReachableHosts(t *testing.T) {
	p := task(t, "level: strict\nnetwork: {hosts: [{host: a.test, ports: [8000-8010], rules: [{methods: [POST], do: ask}]}, {host: '*.b.test', rules: [{do: allow}]}, "+
		"{host: no.b.test, rules: [{do: deny}]}, {host: empty.b.test}]}")
	for host, want := range map[string]bool{
		"a.test": true, "x.a.test": false, "b.test": false, "x.b.test": true, "x.y.b.test": true, "no.b.test": false, "empty.b.test": false,
		"": false, "A.test": false, "a.test.": false, "1.2.3.4": false, "a..b.test": false,
	} {
		if got := p.Reachable(host); got != want {
			t.Errorf("Reachable(%q) = %v, want %v", host, got, want)
		}
	}
}
