package policy_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

func TestParseRejectsInvalidDocuments(t *testing.T) {
	const hosts = "policy: v1\nnetwork:\n  hosts:\n"
	for _, c := range []struct{ name, text, want string }{
		{"empty text", "", "empty"},
		{"no version", "name: x\n", "policy: must be v1"},
		{"another version", "policy: v2\n", "line 1: policy: must be v1"},
		{"unknown field", "policy: v1\nnetworks: {}\n", "line 2: there is no field networks"},
		{"unknown field deep down", hosts + "    - host: a.test\n      rules: [{do: allow, method: [GET]}]\n", "line 5: there is no field method"},
		{"duplicate key", "policy: v1\nname: a\nname: b\n", "already defined"},
		{"two documents", "policy: v1\n---\npolicy: v1\n", "more than one document"},
		{"a list", "- policy\n", "not a set of fields"},
		{"alias", "policy: v1\nnetwork: {hosts: [&a {host: a.test, rules: []}, *a]}\n", "aliases are not supported"},
		{"merge", "policy: v1\n<<: {name: x}\n", "a field's name"},
		{"tag", "policy: !!str v1\n", "tags"},
		{"empty value", hosts + "    - host: a.test\n      rules:\n        - do: allow\n          paths:\n", "line 7: a field without a value"},
		{"too deep", "policy: v1\nname: " + strings.Repeat("[", 40) + strings.Repeat("]", 40), "too deeply"},
		{"too long", "policy: v1\n#" + strings.Repeat("x", 1<<20), "1 MiB"},
		{"not YAML", "policy: v1\n\tname: x\n", "line 2"},
		{"level", "policy: v1\nlevel: lax\n", `line 2: level: "lax" is not one of`},
		{"star", hosts + "    - host: '*'\n", "line 4: network.hosts[0].host: \"*\": * is every host"},
		{"top level", hosts + "    - host: '*.com'\n", "top-level"},
		{"public suffix", hosts + "    - host: '*.co.uk'\n", "anybody can register"},
		{"star inside", hosts + "    - host: 'a.*.test'\n", "a wildcard is"},
		{"upper case", hosts + "    - host: Example.com\n", "lower case"},
		{"address as a name", hosts + "    - host: 10.0.0.1\n", "not a host name"},
		{"number as a name", hosts + "    - host: '2130706433'\n", "not a host name"},
		{"homoglyph", hosts + "    - host: аpple.com\n", "not a host name"},
		{"port in the host", hosts + "    - host: a.test:80\n", "not a host name"},
		{"no host", hosts + "    - rules: []\n", "needs host or addresses"},
		{"host and addresses", hosts + "    - {host: a.test, addresses: [1.2.3.4]}\n", "both host and addresses"},
		{"port", hosts + "    - {host: a.test, ports: [0]}\n", "is not a port"},
		{"port backwards", hosts + "    - {host: a.test, ports: [90-80]}\n", "is not a port"},
		{"no ports", hosts + "    - {host: a.test, ports: []}\n", "an empty list matches nothing"},
		{"same port twice", hosts + "    - {host: a.test, ports: [80-90]}\n    - {host: a.test, ports: [85]}\n", "line 5: network.hosts[1]: a.test already has a block for port 85"},
		{"cidr", hosts + "    - {host: a.test, cidrs: [10.0.0.1/8]}\n", "10.0.0.0/8 is the whole"},
		{"mapped", hosts + "    - {host: a.test, cidrs: ['::ffff:10.0.0.0/104']}\n", "not an address"},
		{"effect", hosts + "    - {host: a.test, rules: [{do: permit}]}\n", `"permit" is not one of allow, ask, deny`},
		{"no effect", hosts + "    - {host: a.test, rules: [{id: x}]}\n", "do: is missing"},
		{"empty methods", hosts + "    - {host: a.test, rules: [{methods: [], do: deny}]}\n", "an empty list matches nothing"},
		{"empty paths", hosts + "    - {host: a.test, rules: [{paths: [], do: deny}]}\n", "an empty list matches nothing"},
		{"method", hosts + "    - {host: a.test, rules: [{methods: [get], do: allow}]}\n", "upper case"},
		{"connect", hosts + "    - {host: a.test, rules: [{methods: [CONNECT], do: allow}]}\n", "refused everywhere"},
		{"path", hosts + "    - {host: a.test, rules: [{paths: [a/b], do: allow}]}\n", "must begin with /"},
		{"dots", hosts + "    - {host: a.test, rules: [{paths: [/a/../b], do: allow}]}\n", ". or .. segment"},
		{"double star inside", hosts + "    - {host: a.test, rules: [{paths: [/a**/b], do: allow}]}\n", "segment of its own"},
		{"other globs", hosts + "    - {host: a.test, rules: [{paths: ['/a?'], do: allow}]}\n", "globs cannot have"},
		{"escapes", hosts + "    - {host: a.test, rules: [{paths: ['/%61'], do: deny}]}\n", "as they are"},
		{"path on a tunnel", hosts + "    - {host: a.test, tunnel: true, rules: [{paths: [/a], do: allow}]}\n", "the gateway does not inspect a tunnel"},
		{"method on a tunnel", hosts + "    - {host: a.test, tunnel: true, rules: [{methods: [GET], do: allow}]}\n", "the gateway does not inspect a tunnel"},
		{"addresses without tunnel", hosts + "    - {addresses: [1.2.3.4], rules: [{do: allow}]}\n", "needs tunnel: true"},
		{"unreachable", hosts + "    - {host: a.test, rules: [{id: a, methods: [GET], paths: [/x/**], do: allow}, {id: b, paths: ['/x/**'], do: deny}]}\n", "is never reached: rule 2 of the block denies"},
		{"the same rule", hosts + "    - {host: a.test, rules: [{do: allow}, {methods: [GET], do: allow}]}\n", "is never reached: rule 1 of the block allows"},
		{"id twice", hosts + "    - {host: a.test, rules: [{id: a, methods: [GET], do: allow}, {id: a, methods: [PUT], do: allow}]}\n", "appears twice"},
		{"limits without a window", hosts + "    - {host: a.test, rules: [{do: allow, limits: {requests: 5}}]}\n", "go together"},
		{"negative limit", hosts + "    - {host: a.test, rules: [{do: allow, limits: {bytes: -1}}]}\n", "positive"},
		{"limited denial", hosts + "    - {host: a.test, rules: [{do: deny, limits: {bytes: 1}}]}\n", "allows nothing"},
		{"a bare number", "policy: v1\nsecrets: {max_ttl: 60}\n", "not a duration"},
		{"allow on timeout", "policy: v1\napprovals: {on_timeout: allow}\n", "not one of deny"},
		{"quorum", "policy: v1\napprovals: {quorum: 11}\n", "1 to 10"},
		{"file path", "policy: v1\nfilesystem: {write: [tmp]}\n", "not an absolute path"},
		{"file path that climbs", "policy: v1\nfilesystem: {write: [/tmp/../etc]}\n", "not an absolute path"},
		{"ref", "policy: v1\ngit: {remotes: [{host: a.test, repo: a/b, push: [main]}]}\n", "must begin with refs/"},
		{"repo", "policy: v1\ngit: {remotes: [{host: a.test, repo: a/b.git}]}\n", "must not have a slash"},
		{"removed field", "policy: v1\nscan: {downloads: block}\n", "there is no field scan"},
	} {
		_, err := policy.Parse([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Parse returned %v, want an error with %q", c.name, err, c.want)
			continue
		}
		if fault.CodeOf(err) != "policy_invalid" || fault.KindOf(err) != fault.Invalid || strings.Contains(err.Error(), "policy.Doc") {
			t.Errorf("%s: the error is %s %s %v, want policy_invalid without names of Go types", c.name, fault.KindOf(err), fault.CodeOf(err), err)
		}
	}
}

func TestParseRejectsInvalidBindings(t *testing.T) {
	for _, c := range []struct{ name, bind, want string }{
		{"wildcard", "{name: A, host: '*.a.test', header: X}", "never to a wildcard"},
		{"tunnel", "{name: A, host: tunnel.test, header: X}", "is a tunnel"},
		{"plain HTTP", "{name: A, host: a.test, port: 80, header: X}", "verified TLS only"},
		{"echo", "{name: A, host: httpbin.org, header: X}", "sends back"},
		{"no header", "{name: A, host: a.test}", "header: is missing"},
		{"framing", "{name: A, host: a.test, header: Host}", "frames the request"},
		{"newline", `{name: A, host: a.test, header: X, format: "{}\nX: y"}`, "only characters that a header may have"},
		{"format without placeholder", "{name: A, host: a.test, header: X, format: abc}", "must contain {} once"},
		{"basic and header", "{name: A, host: a.test, header: X, basic: me}", "of its own"},
		{"two for one header", "{name: A, host: a.test, header: X-Key, paths: [/a/**]}, {name: B, host: a.test, header: x-key, paths: [/a/b]}", "sets too"},
		{"basic beside Authorization", "{name: A, host: a.test, basic: me}, {name: B, host: a.test, header: authorization}", "sets too"},
		{"source", "{name: A, from: 'http://x', host: a.test, header: X}", "must be file:"},
		{"name", "{name: 'a b', host: a.test, header: X}", "name: must be"},
	} {
		text := "policy: v1\nnetwork: {hosts: [{host: tunnel.test, tunnel: true, rules: [{do: allow}]}, {host: a.test, rules: [{do: allow}]}]}\nsecrets: {bind: [" + c.bind + "]}"
		if _, err := policy.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Parse returned %v, want an error with %q", c.name, err, c.want)
		}
	}
	// The same applies to two layers.
	a := parse(t, "network: {hosts: [{host: a.test, tunnel: true, rules: [{do: allow}]}]}\nlevel: minimal")
	b := parse(t, "secrets: {bind: [{name: A, host: a.test, header: X}]}")
	if _, _, err := policy.Compile(project(a), ofTask(b)); err == nil || !strings.Contains(err.Error(), "is a tunnel") {
		t.Errorf("a binding to another layer's tunnel: got %v, want an error", err)
	}
	if _, _, err := policy.Compile(project(b), ofTask(b)); err == nil || !strings.Contains(err.Error(), "sets too") {
		t.Errorf("two layers that set one header: got %v, want an error", err)
	}
	good := task(t, "secrets: {max_ttl: 2h, bind: [{name: A, host: a.test, header: X, methods: [GET]}, {name: B, host: a.test, header: X, methods: [PUT], ttl: 5m}, {name: C, host: a.test, port: 8443, basic: me, max_uses: 3, approve: true}]}")
	binds := good.Binds()
	if len(binds) != 3 || binds[0].Port != 443 || binds[0].TTL.String() != "2h" || binds[1].TTL.String() != "5m" || binds[2].Port != 8443 || !binds[2].Approve {
		t.Errorf("the bindings are %+v, want three with their ports, lifetimes and approval", binds)
	}
}

func TestParseReportsAllProblems(t *testing.T) {
	_, err := policy.Parse([]byte("policy: v1\nlevel: x\nnetwork:\n  unlisted: y\n  hosts:\n    - host: Z\n"))
	for _, want := range []string{"line 2: level", "line 4: network.unlisted", "line 6: network.hosts[0].host"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

// A document and its policy are the same after conversion to YAML and to JSON.
func TestDocumentSurvivesYAMLAndJSON(t *testing.T) {
	p := sample(t, "strict")
	for _, l := range p.Layers() {
		y, err := yaml.Marshal(l.Document)
		if err != nil {
			t.Fatal(err)
		}
		j, err := json.Marshal(l.Document)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{y, j} {
			back, err := policy.Parse(text)
			if err != nil {
				t.Fatalf("Parse: %v\n%s", err, text)
			}
			if !reflect.DeepEqual(back, l.Document) {
				t.Errorf("Parse of\n%s\nreturned %+v\nwant %+v", text, back, l.Document)
			}
		}
		var direct policy.Document
		if err := json.Unmarshal(j, &direct); err != nil || !reflect.DeepEqual(direct, l.Document) {
			t.Errorf("json.Unmarshal returned %v %+v, want the document", err, direct)
		}
	}
	if again := compile(t, p.Layers()...); again.Digest() != p.Digest() {
		t.Errorf("compiling the layers again changed the digest from %s to %s", p.Digest(), again.Digest())
	}
	if other := sample(t, "light"); other.Digest() == p.Digest() {
		t.Error("two policies have the same digest")
	}
}

func TestLevelsAreComplete(t *testing.T) {
	for _, name := range policy.Levels() {
		d, err := policy.Level(name)
		if err != nil {
			t.Fatal(err)
		}
		p, warnings, err := policy.Compile(policy.Layer{Kind: policy.LayerLevel, Document: d})
		if err != nil || len(warnings) > 0 || p.Level() != name {
			t.Errorf("level %s: Compile returned %v, warnings %v", name, err, warnings)
		}
		text, err := policy.LevelText(name)
		if err != nil || !strings.HasPrefix(string(text), "# "+name+":") {
			t.Errorf("level %s: its text does not begin with its name: %v", name, err)
		}
		d.Network.Writes = ""
		if _, _, err := policy.Compile(policy.Layer{Kind: policy.LayerLevel, Document: d}); err == nil {
			t.Errorf("level %s is accepted without network.writes", name)
		}
	}
	if _, err := policy.Level("../strict"); err == nil {
		t.Error("Level accepted a path outside the list")
	}
	if _, _, err := policy.Compile(policy.Layer{Kind: "floor"}); err == nil {
		t.Error("Compile accepted a layer of an unknown kind")
	}
	if _, _, err := policy.Compile(ofTask(policy.None()), org(policy.None())); err == nil {
		t.Error("Compile accepted layers in the wrong order")
	}
}

func TestCompileWarnings(t *testing.T) {
	for text, want := range map[string]string{
		"network: {hosts: [{host: github.com, rules: [{do: allow}]}]}":                                     "stores data for anyone",
		"network: {hosts: [{host: '*.s3.amazonaws.com', rules: [{methods: [PUT], do: allow}]}]}":           "stores data for anyone",
		"network: {hosts: [{host: github.com, rules: [{methods: [GET], do: allow}]}]}":                     "",
		"network: {hosts: [{host: github.com, rules: [{methods: [POST], paths: [/acme/**], do: allow}]}]}": "",
		"network: {hosts: [{host: '*.github.io', rules: [{methods: [GET], do: allow}]}]}":                  "gives to anybody",
		"network: {hosts: [{host: a.test}]}":                                                               "has no rules",
		"network: {hosts: [{addresses: [10.0.0.0/8], tunnel: true, rules: [{do: allow}]}]}":                "is private",
		"network: {unlisted: allow}": "is looser than ask",
		"secrets: {bind: [{name: A, host: a.test, header: X}]}\nlevel: strict": "cannot be reached",
	} {
		_, warnings, err := policy.Compile(ofTask(parse(t, text)))
		if err != nil {
			t.Fatal(err)
		}
		if (want == "") != (len(warnings) == 0) || !strings.Contains(fmt.Sprint(warnings), want) {
			t.Errorf("%s: the warnings are %+v, want %q", text, warnings, want)
		}
	}
}

func TestRequestLimits(t *testing.T) {
	rule := func(limits string) string {
		return "network: {hosts: [{host: a.test, rules: [{id: r, methods: [GET], do: allow, limits: " + limits + "}]}]}"
	}
	get := policy.Request{Host: "a.test", Port: 443, Method: "GET", Path: "/", TLS: true}
	_, l := task(t, rule("{requests: 10, per: 1m, bytes: 1000, connections: 3}")).Request(get)
	if l.Rule != "host:a.test/r" || l.Requests != 10 || l.Window.Seconds() != 60 || l.Bytes != 1000 || l.Connections != 3 {
		t.Errorf("the limits of a rule are %+v, want 10 requests in 1m, 1000 bytes and 3 connections", l)
	}
	// A request that a task's own rule allows is counted under the organisation's rule.
	p := compile(t, org(parse(t, rule("{requests: 10, per: 1m, bytes: 1000}"))),
		ofTask(parse(t, strings.ReplaceAll(rule("{requests: 1, per: 1s, bytes: 50, connections: 2}"), "id: r", "id: mine"))))
	d, l := p.Request(get)
	if l.Rule != "host:a.test/r" || l.Requests != 10 || l.Bytes != 50 || l.Connections != 2 || d.Rule != "host:a.test/mine" || d.Effect != egress.Allow {
		t.Errorf("the combined limits are %+v by %s, want 10 requests, 50 bytes and 2 connections", l, d.Rule)
	}
}
