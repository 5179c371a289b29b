package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

var strength = map[egress.Effect]int{egress.Allow: 0, egress.Ask: 1, egress.Deny: 2}

func org(d policy.Document) policy.Layer {
	return policy.Layer{Kind: policy.LayerOrganisation, Document: d}
}
func project(d policy.Document) policy.Layer {
	return policy.Layer{Kind: policy.LayerProject, Document: d}
}
func ofTask(d policy.Document) policy.Layer { return policy.Layer{Kind: policy.LayerTask, Document: d} }

func TestOrganisationLimitsTask(t *testing.T) {
	top := parse(t, "level: strict\nnetwork: {hosts: [{host: '*.good.test', rules: [{id: r, methods: [GET, POST], do: allow}, {id: hooks, paths: [/hooks/**], do: deny}]}, "+
		"{host: db.good.test, ports: [5432], cidrs: [10.0.0.0/8], rules: [{do: ask}]}]}")
	low := parse(t, "network: {hosts: [{host: api.good.test, rules: [{id: all, do: allow}]}, {host: evil.test, rules: [{do: allow}]}, "+
		"{host: db.good.test, ports: [5432], cidrs: [10.1.0.0/16, 192.168.0.0/16], rules: [{do: allow}]}]}")
	p := compile(t, org(top), ofTask(low))
	for _, c := range []struct {
		request string
		effect  egress.Effect
		layer   string
	}{
		{"GET https://api.good.test/x", "allow", "task"},
		{"PUT https://api.good.test/x", "deny", "organisation"},
		{"GET https://api.good.test/hooks/1", "deny", "organisation"},
		{"GET https://evil.test/", "deny", "level"},
		// A task with network settings may reach the hosts that it lists, but not everything that
		// the organisation permits.
		{"GET https://other.good.test/", "deny", "level"},
		{"GET https://db.good.test:5432/", "ask", "organisation"},
	} {
		if d := decide(t, p, c.request); d.Effect != c.effect || d.Layer != c.layer {
			t.Errorf("%s: %+v, want %s by the %s layer", c.request, d, c.effect, c.layer)
		}
	}
	if d := decide(t, p, "GET https://evil.test/"); d.Fix != "" {
		t.Errorf("the decision has a fix that cannot work: %q", d.Fix)
	}
	if got := p.Connect("db.good.test", 5432).Private; !slices.Equal(got, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}) {
		t.Errorf("the private prefixes are %v, want only those within the organisation's", got)
	}
	// Without network settings in lower layers, the organisation's hosts apply.
	alone := compile(t, org(top), ofTask(parse(t, "git: {fetch: deny}")))
	if d := decide(t, alone, "POST https://other.good.test/"); d.Effect != egress.Ask || d.Rule != policy.RuleWrites {
		t.Errorf("a task without network settings: %+v, want ask by %s", d, policy.RuleWrites)
	}
	// A task with an empty list of hosts may reach nothing.
	if d := decide(t, compile(t, org(top), ofTask(policy.None())), "GET https://other.good.test/"); d.Effect != egress.Deny {
		t.Errorf("a task with no hosts: %+v, want deny", d)
	}
}

func TestProjectAndTaskBlocks(t *testing.T) {
	a := parse(t, "level: strict\nnetwork: {hosts: [{host: '*.x.test', rules: [{methods: [GET], do: allow}, {id: no, paths: [/secret/**], do: deny}]}, {host: same.test, rules: [{methods: [GET], do: allow}]}]}")
	b := parse(t, "network: {hosts: [{host: a.x.test, ports: [8443], rules: [{do: allow}]}, {host: same.test, rules: [{methods: [GET], do: ask}, {methods: [HEAD], do: allow}]}]}")
	p := compile(t, project(a), ofTask(b))
	for request, want := range map[string]egress.Effect{
		"GET https://a.x.test/":            "allow", // the task's block has another port
		"GET https://a.x.test:8443/":       "allow",
		"GET https://a.x.test:8443/secret": "allow", // the project's denial is for its own port
		"GET https://a.x.test/secret/1":    "deny",
		"GET https://same.test/":           "ask",
		"HEAD https://same.test/":          "allow",
		"POST https://same.test/":          "deny",
	} {
		if d := decide(t, p, request); d.Effect != want {
			t.Errorf("%s: %+v, want %s", request, d, want)
		}
	}
}

func TestSettingsOnlyTighten(t *testing.T) {
	up := parse(t, "level: standard\nnetwork: {unlisted: deny, writes: ask}\napprovals: {quorum: 3, timeout: 5m}\nsecrets: {max_ttl: 10m}\nfilesystem: {write: [/workspace], deny: ['**/a']}")
	down := parse(t, "level: minimal\nnetwork: {unlisted: allow, writes: rule, tunnels: allow, websocket: allow}\napprovals: {quorum: 1, timeout: 1h}\nsecrets: {max_ttl: 1h, approve: never}\n"+
		"filesystem: {write: [/workspace/sub, /etc], deny: ['**/b'], workspace: {mode: bind}}\nredact: {outputs: false, patterns: false}\ngit: {push: {force: allow}}\npackages: {publish: allow}\nisolation: {at_least: none}")
	p, warnings, err := policy.Compile(org(up), ofTask(down))
	if err != nil {
		t.Fatal(err)
	}
	d := p.Document()
	got := fmt.Sprint(p.Level(), d.Network.Unlisted, d.Network.Writes, d.Network.Tunnels, d.Network.WebSocket, d.Approvals.Quorum, d.Approvals.Timeout, d.Secrets.MaxTTL, d.Secrets.Approve,
		d.Filesystem.Write, d.Filesystem.Workspace.Mode, *d.Redact.Outputs, *d.Redact.Patterns, d.Git.Push.Force, d.Packages.Publish, d.Isolation.AtLeast)
	const want = "standarddenyaskdenydeny3 5m 10mfirst_use[/workspace/sub]overlaytrue truedenyaskuserspace-kernel"
	if strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("merged settings: got  %s\nwant %s", got, want)
	}
	for _, g := range []string{"**/a", "**/b", "**/.env"} {
		if !slices.Contains(d.Filesystem.Deny, g) {
			t.Errorf("filesystem.deny lacks %s: %v", g, d.Filesystem.Deny)
		}
	}
	if len(warnings) < 10 {
		t.Errorf("%d warnings, want one for each ignored setting: %v", len(warnings), warnings)
	}
}

// random makes documents from few hosts, so that layers overlap.
func random(r *rand.Rand) policy.Document {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	d := policy.Document{Policy: "v1", Level: pick("", "", "strict", "standard", "light", "minimal")}
	n := &d.Network
	n.Unlisted, n.Writes = pick("", "deny", "ask", "read", "allow"), pick("", "", "rule", "ask", "deny")
	n.Tunnels, n.WebSocket = egress.Effect(pick("", "allow", "ask", "deny")), egress.Effect(pick("", "allow", "ask", "deny"))
	for _, host := range []string{"a.x.test", "*.x.test", "*.a.x.test", "b.test"} {
		if r.IntN(2) == 0 {
			continue
		}
		h := policy.Host{Host: host, EncodedSlash: r.IntN(2) == 0, WebSocket: egress.Effect(pick("", "allow", "deny"))}
		if r.IntN(3) == 0 {
			h.Ports = policy.Ports{{First: 443, Last: 443 + r.IntN(2)}}
		}
		if r.IntN(4) == 0 {
			h.Tunnel, h.EncodedSlash, h.WebSocket = true, false, ""
			h.Rules = []policy.Rule{{Do: egress.Effect(pick("allow", "ask", "deny"))}}
			n.Hosts = append(n.Hosts, h)
			continue
		}
		for range r.IntN(4) {
			rule := policy.Rule{Do: egress.Effect(pick("allow", "allow", "ask", "deny"))}
			if r.IntN(2) == 0 {
				rule.Methods = []string{pick("GET", "POST")}
			}
			if r.IntN(2) == 0 {
				rule.Paths = []string{pick("/p/**", "/p/*", "/p/q", "/**/q")}
			}
			h.Rules = append(h.Rules, rule)
		}
		n.Hosts = append(n.Hosts, h)
	}
	return d
}

func randomValid(r *rand.Rand) policy.Document {
	for {
		d := random(r)
		if _, _, err := policy.Compile(ofTask(d)); err == nil {
			return d
		}
	}
}

// eachDecision calls each for the decision about every connection and request of a fixed set.
func eachDecision(p *policy.Policy, each func(what string, e egress.Effect)) {
	for _, host := range []string{"a.x.test", "c.x.test", "d.a.x.test", "b.test", "other.test"} {
		for _, port := range []int{443, 444} {
			c := p.Connect(host, port)
			if !c.Inspect {
				each(fmt.Sprintf("%s:%d", host, port), c.Effect)
			}
			for _, method := range []string{"GET", "POST", "post"} {
				for _, path := range []string{"/", "/p/q", "/P/Q", "/p/q/", "/p/%2Fq", "/p/r/s", "/r/q"} {
					for _, ws := range []bool{false, true} {
						d, _ := p.Request(policy.Request{Host: host, Port: port, Method: method, Path: path, TLS: true, WebSocket: ws})
						each(fmt.Sprintf("%s %s:%d%s %v", method, host, port, path, ws), d.Effect)
					}
				}
			}
		}
	}
}

func effects(p *policy.Policy) map[string]egress.Effect {
	out := map[string]egress.Effect{}
	eachDecision(p, func(what string, e egress.Effect) { out[what] = e })
	return out
}

// A task never gets a looser decision than its organisation's document alone. A denial that any
// layer adds only makes decisions stricter.
func TestRandomLayersOnlyTighten(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	narrower := 0
	for range 150 {
		top, mid, low := randomValid(r), randomValid(r), randomValid(r)
		if top.Level == "" {
			top.Level = "standard" // otherwise a lower layer chooses
		}
		if len(top.Network.Hosts) == 0 && top.Network.Unlisted == "" {
			continue
		}
		alone := effects(compile(t, org(top)))
		both := compile(t, org(top), project(mid), ofTask(low))
		for what, e := range effects(both) {
			upper, known := alone[what]
			if known && strength[e] < strength[upper] {
				t.Fatalf("%s is %s, but %s by the organisation alone\n%+v\n%+v\n%+v", what, e, upper, top.Network, mid.Network, low.Network)
			}
			if known && strength[e] > strength[upper] {
				narrower++
			}
		}
		// Add a document that only denies, in any layer.
		denies := policy.Document{Policy: "v1", Network: policy.Network{Hosts: []policy.Host{{Host: "*.x.test", Ports: policy.Ports{policy.AllPorts}, Rules: []policy.Rule{{Do: egress.Deny}}}}}}
		with := effects(compile(t, org(top), project(mid), ofTask(low), ofTask(denies)))
		for what, e := range effects(both) {
			now, known := with[what]
			if known && strength[now] < strength[e] {
				t.Fatalf("a further denial changed %s from %s to %s", what, e, now)
			}
			if known && strings.Contains(what, ".x.test") && now != egress.Deny {
				t.Fatalf("%s is %s although a layer denies it", what, now)
			}
		}
	}
	if narrower == 0 {
		t.Fatal("control: no task made a decision stricter, so nothing was compared")
	}
}

// The decision of Connect is no stricter than that about any request on the connection, and a name
// is resolved if any request could be allowed.
func TestConnectIsNotStricterThanRequests(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	seen := map[egress.Effect]int{}
	for range 150 {
		p := compile(t, org(randomValid(r)), project(randomValid(r)), ofTask(randomValid(r)))
		for _, host := range []string{"a.x.test", "c.x.test", "d.a.x.test", "b.test", "other.test"} {
			for _, port := range []int{443, 444} {
				c := p.Connect(host, port)
				seen[c.Effect]++
				if c.Effect != egress.Deny && !p.Reachable(host) {
					t.Fatalf("a connection to %s:%d is %s, but its name is not resolved", host, port, c.Effect)
				}
				if c.Effect == egress.Deny || c.Inspect || c.Tunnel {
					if c.Effect != egress.Deny || c.Tunnel {
						continue
					}
					for _, m := range []string{"GET", "POST"} {
						for _, path := range []string{"/", "/p/q", "/p/r/s", "/r/q"} {
							if d, _ := p.Request(policy.Request{Host: host, Port: port, Method: m, Path: path, TLS: true}); d.Effect != egress.Deny {
								t.Fatalf("%s %s:%d%s is %s by %s, but the connection is denied by %s", m, host, port, path, d.Effect, d.Rule, c.Rule)
							}
						}
					}
					continue
				}
				// The connection is not inspected, so no request may have a stricter decision.
				for _, m := range []string{"GET", "POST", "PUT"} {
					for _, path := range []string{"/", "/p/q", "/p/r/s"} {
						for _, ws := range []bool{false, true} {
							d, _ := p.Request(policy.Request{Host: host, Port: port, Method: m, Path: path, TLS: true, WebSocket: ws})
							if strength[d.Effect] > strength[c.Effect] {
								t.Fatalf("%s %s:%d%s is %s by %s, but the connection is not inspected and is %s by %s", m, host, port, path, d.Effect, d.Rule, c.Effect, c.Rule)
							}
						}
					}
				}
			}
		}
	}
	if seen[egress.Allow] == 0 || seen[egress.Deny] == 0 || seen[egress.Ask] == 0 {
		t.Fatalf("control: not every effect occurred: %v", seen)
	}
}

// If Widen reports nothing, no request is decided more loosely.
func TestWidenReportsEveryLooserDecision(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	none := 0
	for range 1000 {
		a := []policy.Document{randomValid(r), randomValid(r), randomValid(r)}
		b := slices.Clone(a)
		i := r.IntN(3)
		switch d := &b[i]; r.IntN(4) {
		case 0:
			b[i] = randomValid(r)
		case 1: // remove a block
			if n := len(d.Network.Hosts); n > 0 {
				at := r.IntN(n)
				d.Network.Hosts = slices.Concat(d.Network.Hosts[:at], d.Network.Hosts[at+1:])
			}
		case 2: // add a rule that denies
			if n := len(d.Network.Hosts); n > 0 {
				d.Network.Hosts = slices.Clone(d.Network.Hosts)
				h := &d.Network.Hosts[r.IntN(n)]
				h.Rules = slices.Concat([]policy.Rule{{ID: "new", Do: egress.Deny}}, h.Rules)
			}
		case 3: // remove a rule
			if n := len(d.Network.Hosts); n > 0 {
				d.Network.Hosts = slices.Clone(d.Network.Hosts)
				h := &d.Network.Hosts[r.IntN(n)]
				if len(h.Rules) > 0 {
					h.Rules = h.Rules[1:]
				}
			}
		}
		before, _, err := policy.Compile(org(a[0]), project(a[1]), ofTask(a[2]))
		if err != nil {
			t.Fatal(err)
		}
		after, _, err := policy.Compile(org(b[0]), project(b[1]), ofTask(b[2]))
		if err != nil {
			continue // the new rule makes another one unreachable
		}
		if len(policy.Widen(before, after)) > 0 {
			continue
		}
		if before.Digest() != after.Digest() {
			none++
		}
		old := effects(before)
		for what, e := range effects(after) {
			if was, known := old[what]; known && strength[e] < strength[was] {
				t.Fatalf("%s changed from %s to %s, but Widen reports nothing\n%+v\n%+v", what, was, e, a, b)
			}
		}
	}
	if none < 50 {
		t.Fatalf("control: only %d changes were reported as not wider, want at least 50", none)
	}
}

func TestWidenReportsEachSetting(t *testing.T) {
	base := "network: {hosts: [{host: a.test, ports: [443, 8443], rules: [{id: r, methods: [GET, POST], paths: [/a/**], do: allow}, {id: n, paths: [/a/b], do: deny}]}, {host: b.test, rules: [{do: ask}]}]}\nfilesystem: {deny: ['**/x']}\n"
	before := task(t, "level: strict\n"+base)
	for _, c := range []struct {
		name, from, to string
		wider          bool
	}{
		{"no change", "", "", false},
		{"port removed", "[443, 8443]", "[443]", false},
		{"method removed", "[GET, POST]", "[GET]", false},
		{"narrower path", "[/a/**], do: allow", "[/a/c/**], do: allow", false},
		{"allow to ask", "do: allow", "do: ask", false},
		{"host removed", ", {host: b.test, rules: [{do: ask}]}", "", false},
		{"port added", "[443, 8443]", "[443, 8443, 80]", true},
		{"method added", "[GET, POST]", "[GET, POST, PUT]", true},
		{"wider path", "[/a/**], do: allow", "[/**], do: allow", true},
		{"ask to allow", "do: ask", "do: allow", true},
		{"denial removed", ", {id: n, paths: [/a/b], do: deny}", "", true},
		{"host added", "{host: b.test", "{host: c.test, rules: [{do: allow}]}, {host: b.test", true},
		{"file no longer denied", "['**/x']", "['**/y']", true},
		{"looser level", "strict", "light", true},
	} {
		text := strings.Replace("level: strict\n"+base, c.from, c.to, 1)
		if got := policy.Widen(before, task(t, text)); len(got) > 0 != c.wider {
			t.Errorf("%s: Widen = %v, want widening: %v", c.name, got, c.wider)
		}
	}
}
