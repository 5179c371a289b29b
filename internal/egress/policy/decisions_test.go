package policy_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

func TestRunCases(t *testing.T) {
	text, err := os.ReadFile("testdata/cases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	results, err := policy.RunCases(sample(t, "standard"), text)
	if err != nil || len(results) != 5 {
		t.Fatalf("RunCases returned %d results, want 5: %v", len(results), err)
	}
	for _, r := range results {
		if !r.OK || r.Line == 0 {
			t.Errorf("line %d: case %+v: got %+v", r.Line, r.Case, r.Got)
		}
	}
	results, err = policy.RunCases(sample(t, "standard"), []byte("cases:\n  - {request: GET https://example.com/, expect: allow}\n  - {request: GET https://example.com/, expect: ask, rule: other}\n"))
	if err != nil || len(results) != 2 || results[0].OK || results[1].OK || results[1].Line != 3 {
		t.Errorf("RunCases with wrong expectations: got %+v %v, want two failed cases, the second in line 3", results, err)
	}
	for _, bad := range []string{"cases: []", "cases: [{expect: allow}]", "cases: [{request: x, expect: allow}]", "cases: [{connect: a, expect: allow}]",
		"cases: [{request: GET https://a.test/}]", "cases: [{request: GET ftp://a.test/, expect: deny}]", "cases: [{request: GET https://a@b.test/, expect: deny}]", "tests: []"} {
		if _, err := policy.RunCases(sample(t, "strict"), []byte(bad)); err == nil {
			t.Errorf("RunCases accepted %s", bad)
		}
	}
}

// A path that a server may interpret as a denied path is denied. A path that it may only interpret
// as an allowed path is not allowed.
func TestRulesMatchEverySpellingOfPath(t *testing.T) {
	p := task(t, "level: light\nnetwork: {hosts: [{host: a.test, encoded_slash: true, rules: [{id: all, paths: [/repos/**], do: allow}, {id: hooks, paths: [/repos/*/hooks/**, /repos/admin], do: deny}, "+
		"{id: ask, paths: [/repos/*/pulls], do: ask}, {id: delete, methods: [DELETE], do: deny}]}]}")
	for request, want := range map[string]string{
		"GET https://a.test/repos/x/issues":      "allow",
		"GET https://a.test/repos/x/hooks":       "deny",
		"GET https://a.test/repos/x/HOOKS/1":     "deny",
		"GET https://a.test/repos/x/%68ooks/1":   "deny",
		"GET https://a.test/repos/x%2Fhooks":     "deny",
		"GET https://a.test/repos/admin/":        "deny",
		"GET https://a.test/repos/x/../y/hooks":  "deny",
		"GET https://a.test/repos//x/hooks":      "deny",
		"GET https://a.test/repos/x/hooks;a=b":   "deny",
		"GET https://a.test/repos/x/pulls":       "ask",
		"GET https://a.test/repos/x/Pulls/":      "ask",
		"GET https://a.test/REPOS/x":             "deny",
		"delete https://a.test/repos/x":          "deny",
		"GET https://a.test/repos%2Fx":           "deny",
		"GET https://a.test/other":               "deny",
		"PROPFIND https://a.test/repos/x/issues": "allow",
		"TRACE https://a.test/repos/x/issues":    "deny",
	} {
		if d := decide(t, p, request); string(d.Effect) != want {
			t.Errorf("%s is %s by %s, want %s", request, d.Effect, d.Rule, want)
		}
	}
	strict := task(t, "level: strict\nnetwork: {hosts: [{host: a.test, rules: [{do: allow}]}]}")
	for request, want := range map[string]string{"GET https://a.test/": "allow", "get https://a.test/": "ask", "POST https://a.test/": "ask", "GET https://a.test/a%2Fb": "deny"} {
		if d := decide(t, strict, request); string(d.Effect) != want {
			t.Errorf("%s is %s by %s under strict, want %s", request, d.Effect, d.Rule, want)
		}
	}
}

func TestPushAndPublish(t *testing.T) {
	for _, c := range []struct {
		level string
		r     policy.PushRequest
		want  egress.Effect
		rule  string
	}{
		{"strict", policy.PushRequest{Host: "github.com", Repo: "acme/pay", Ref: "refs/heads/agent/x"}, "allow", "git.remotes:github.com/acme/pay"},
		{"strict", policy.PushRequest{Host: "github.com", Repo: "acme/pay.git", Ref: "refs/heads/agent/x/y"}, "allow", "git.remotes:github.com/acme/pay"},
		{"strict", policy.PushRequest{Host: "github.com", Repo: "acme/pay", Ref: "refs/heads/main"}, "deny", "git.push.unlisted"},
		{"standard", policy.PushRequest{Host: "github.com", Repo: "acme/pay", Ref: "refs/heads/main"}, "ask", "git.push.unlisted"},
		{"standard", policy.PushRequest{Host: "github.com", Repo: "acme/pay", Ref: "refs/tags/v1"}, "ask", "git.push.unlisted"},
		{"standard", policy.PushRequest{Host: "github.com", Repo: "acme/other", Ref: "refs/heads/agent/x"}, "ask", "git.push.unlisted"},
		{"standard", policy.PushRequest{Host: "gitlab.com", Repo: "acme/pay", Ref: "refs/heads/agent/x"}, "ask", "git.push.unlisted"},
		{"standard", policy.PushRequest{Host: "github.com", Repo: "acme/pay", Ref: "refs/heads/agent/x", Delete: true}, "ask", "git.push.delete"},
		{"standard", policy.PushRequest{Host: "github.com", Repo: "acme/pay", Ref: "refs/heads/agent/x", Force: true}, "deny", "git.push.force"},
		{"light", policy.PushRequest{Host: "github.com", Repo: "acme/pay", Ref: "refs/heads/main"}, "allow", "git.push.unlisted"},
		{"light", policy.PushRequest{Host: "github.com", Repo: "acme/pay", Ref: "refs/heads/main", Force: true}, "ask", "git.push.force"},
		{"minimal", policy.PushRequest{Host: "github.com", Repo: "x/y", Ref: "refs/heads/main", Force: true, Delete: true}, "allow", "git.push.unlisted"},
	} {
		d := sample(t, c.level).Push(c.r)
		if d.Effect != c.want || d.Rule != c.rule || (d.Reason == "") != (c.want == "allow") {
			t.Errorf("level %s: Push(%+v) = %+v, want %s by %s", c.level, c.r, d, c.want, c.rule)
		}
	}
	var decisions strings.Builder
	for _, level := range policy.Levels() {
		p := sample(t, level)
		fmt.Fprint(&decisions, p.Publish("registry.npmjs.org").Effect, " ", p.Fetch("github.com", "acme/pay").Effect, " ", p.Fetch("github.com", "x/y").Effect, "; ")
	}
	if got := decisions.String(); got != "deny allow deny; ask allow allow; ask allow allow; allow allow allow; " {
		t.Errorf("publish, fetch of a listed and of an unlisted remote by level: got %s", got)
	}
	if d := sample(t, "strict").Publish("registry.npmjs.org"); d.Fix != "--level standard" {
		t.Errorf("the fix for a denied publication is %q, want --level standard", d.Fix)
	}
	// The organisation's remotes limit those of the task.
	top := parse(t, "level: standard\ngit: {push: {unlisted: deny}, remotes: [{host: github.com, repo: acme/*, push: ['refs/heads/agent/**']}]}")
	low := parse(t, "git: {remotes: [{host: github.com, repo: evil/x, push: ['refs/heads/**']}, {host: github.com, repo: acme/a, push: ['refs/heads/**']}]}")
	p := compile(t, org(top), ofTask(low))
	for repo, want := range map[string]egress.Effect{"evil/x": "deny", "acme/a": "allow"} {
		if d := p.Push(policy.PushRequest{Host: "github.com", Repo: repo, Ref: "refs/heads/agent/x"}); d.Effect != want {
			t.Errorf("push to %s: got %+v, want %s", repo, d, want)
		}
	}
	if d := p.Push(policy.PushRequest{Host: "github.com", Repo: "acme/a", Ref: "refs/heads/main"}); d.Effect != "deny" {
		t.Errorf("push to a ref that the organisation does not list: got %+v, want deny", d)
	}
}

func TestHostsDocument(t *testing.T) {
	d, err := policy.Hosts("Example.com", "example.com:8443", "*.b.test:80", "203.0.113.7:22", "198.51.100.0/24", "[2001:db8::1]:443")
	if err != nil {
		t.Fatal(err)
	}
	p := compile(t, ofTask(d))
	for request, want := range map[string]egress.Effect{
		"GET https://example.com/": "allow", "POST https://example.com:8443/": "allow", "GET https://example.com:9/": "deny", "GET http://example.com:80/": "deny",
		"GET http://x.b.test/": "allow", "GET https://x.b.test/": "deny", "GET https://other.test/": "deny",
	} {
		if got := decide(t, p, request); got.Effect != want {
			t.Errorf("%s: got %+v, want %s", request, got, want)
		}
	}
	d.Level = "minimal"
	p = compile(t, ofTask(d))
	for request, want := range map[string]egress.Effect{"203.0.113.7:22": "allow", "203.0.113.7:23": "deny", "198.51.100.9:443": "allow", "203.0.113.8:22": "deny", "[2001:db8::1]:443": "allow"} {
		if got := decide(t, p, request); got.Effect != want {
			t.Errorf("%s under minimal: got %+v, want %s", request, got, want)
		}
	}
	for _, bad := range []string{"", "*", "*.com", "a b", "http://a.test", "a.test:0", "a.test:", "a.test:99999", "a.test/x", "a@b.test"} {
		if _, err := policy.Hosts(bad); err == nil {
			t.Errorf("Hosts accepted %q", bad)
		}
	}
}

func TestPresetDocuments(t *testing.T) {
	for _, c := range []struct {
		d    policy.Document
		want map[string]egress.Effect
	}{
		{policy.None(), map[string]egress.Effect{"GET https://a.test/": "deny", "GET https://pypi.org/simple": "deny"}},
		{policy.Open(), map[string]egress.Effect{"POST https://a.test/": "allow", "a.test:22": "allow"}},
		{policy.Dev(), map[string]egress.Effect{
			"GET https://a.test/": "deny", "GET https://pypi.org/simple/x/": "allow", "PUT https://registry.npmjs.org/x": "deny", "GET https://registry.npmjs.org/@a%2Fb": "allow",
			"GET http://deb.debian.org/debian/": "allow", "GET http://pypi.org/": "deny", "POST https://github.com/a/b/git-upload-pack": "allow", "POST https://github.com/session": "deny", "POST https://api.anthropic.com/v1/messages": "allow",
		}},
	} {
		p, _, err := policy.Compile(ofTask(c.d))
		if err != nil {
			t.Fatal(err)
		}
		for request, want := range c.want {
			if got := decide(t, p, request); got.Effect != want {
				t.Errorf("preset %s: %s: got %+v, want %s", c.d.Name, request, got, want)
			}
		}
	}
	// An open network that replaces a level's leaves the rest of the level unchanged.
	level, err := policy.Level("standard")
	if err != nil {
		t.Fatal(err)
	}
	level.Network = policy.Open().Network
	p := compile(t, policy.Layer{Kind: policy.LayerLevel, Document: level})
	if decide(t, p, "POST https://a.test/").Effect != "allow" || p.Publish("pypi.org").Effect != "ask" || p.Level() != "standard" {
		t.Error("replacing the network changed other settings of the level")
	}
}

func TestExplainSteps(t *testing.T) {
	p := sample(t, "strict")
	r, err := policy.ParseRequest("POST https://api.openai.com/v1/responses")
	if err != nil {
		t.Fatal(err)
	}
	d, steps := p.Explain(r)
	var text []string
	for _, s := range steps {
		text = append(text, s.Layer+" "+s.Rule+" "+string(s.Effect))
	}
	want := "task host:api.openai.com/llm allow|level network.writes ask|level network.writes ask"
	if got := strings.Join(text, "|"); got != want {
		t.Errorf("Explain steps: got  %s\nwant %s", got, want)
	}
	if e, _ := p.Request(r); e != d {
		t.Errorf("Explain returned %+v, but Request %+v", d, e)
	}
	if c, steps := p.Explain(policy.Request{Host: "db.internal.acme.test", Port: 5432}); c.Rule != policy.RuleTunnels || len(steps) < 2 {
		t.Errorf("Explain of a tunnel = %+v %+v, want %s", c, steps, policy.RuleTunnels)
	}
}

func TestMatcherAndApprovalSettings(t *testing.T) {
	p := compile(t, ofTask(parse(t, "level: standard\nnetwork: {hosts: [{host: a.test, approval: {quorum: 3, timeout: 1m}, rules: [{do: ask}]}]}\nfilesystem: {protect: ['**/Makefile']}")))
	m := p.Files().Matcher()
	for path, want := range map[string][2]bool{"/workspace/.env": {true, false}, "/workspace/.ENV": {true, false}, "/w/.git/hooks/pre-commit": {false, true}, "/w/sub/Makefile": {false, true}, "/w/main.go": {false, false}} {
		if got := [2]bool{m.Denied(path), m.Protected(path)}; got != want {
			t.Errorf("%s: denied and protected are %v, want %v", path, got, want)
		}
	}
	f := p.Files()
	if f.Workspace != "overlay" || !f.Writable || len(f.Write) == 0 {
		t.Errorf("the file settings are %+v, want a writable overlay with writable paths", f)
	}
	if n, d := p.Approval("a.test", 443); n != 3 || d.Minutes() != 1 {
		t.Errorf("Approval for a host with settings = %d %v, want 3 and 1 minute", n, d)
	}
	if n, d := p.Approval("b.test", 443); n != 1 || d.Minutes() != 30 {
		t.Errorf("Approval for another host = %d %v, want 1 and 30 minutes", n, d)
	}
}
