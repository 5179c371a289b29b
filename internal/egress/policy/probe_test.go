package policy_test

import (
	"reflect"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
)

// Each policy has probes that cover its decisions without being noticed by an outside host.
func TestProbesOfPolicy(t *testing.T) {
	always := policy.Probes{Refused: []string{policy.MetadataAddress}, Dropped: []string{policy.UnusedDatagram}}
	for name, c := range map[string]struct {
		network string
		want    policy.Probes
	}{
		"no hosts":  {"unlisted: deny", policy.Probes{Unknown: []string{policy.UnusedName}}},
		"all hosts": {"unlisted: allow", policy.Probes{}},
		"a host": {"unlisted: deny, hosts: [{host: a.test, rules: [{do: allow}]}]", policy.Probes{
			Unknown: []string{policy.UnusedName}, Known: []string{"a.test"}, Reached: []string{"a.test:443"}, Closed: []string{"a.test:9"},
		}},
		"a denied host among all hosts": {"unlisted: allow, hosts: [{host: b.test, ports: [1-65535], rules: [{do: deny}]}]", policy.Probes{Unknown: []string{"b.test"}}},
		"a host with another port": {"unlisted: deny, hosts: [{host: a.test, ports: [8443], rules: [{do: ask}]}]", policy.Probes{
			Unknown: []string{policy.UnusedName}, Known: []string{"a.test"}, Reached: []string{"a.test:8443"}, Closed: []string{"a.test:9"},
		}},
		"a host with the port of the probe": {"unlisted: deny, hosts: [{host: a.test, ports: [9, 443], rules: [{do: allow}]}]", policy.Probes{
			Unknown: []string{policy.UnusedName}, Known: []string{"a.test"}, Reached: []string{"a.test:443"}, Closed: []string{"a.test:1"},
		}},
		// A tunnel is dialled as soon as it is accepted. A probe of a rule that limits connections
		// would count against the limit.
		"a tunnel": {"unlisted: deny, hosts: [{host: a.test, tunnel: true, rules: [{do: allow}]}]", policy.Probes{
			Unknown: []string{policy.UnusedName}, Known: []string{"a.test"}, Closed: []string{"a.test:9"},
		}},
		"a tunnel and another host": {"unlisted: deny, hosts: [{host: a.test, tunnel: true, rules: [{do: allow}]}, {host: b.test, rules: [{do: allow}]}]", policy.Probes{
			Unknown: []string{policy.UnusedName}, Known: []string{"b.test"}, Reached: []string{"b.test:443"}, Closed: []string{"b.test:9"},
		}},
		"limited connections": {"unlisted: deny, hosts: [{host: a.test, rules: [{do: allow, limits: {connections: 1}}]}]", policy.Probes{
			Unknown: []string{policy.UnusedName}, Known: []string{"a.test"}, Closed: []string{"a.test:9"},
		}},
		"addresses and wildcards": {"unlisted: deny, hosts: [{host: '*.a.test', rules: [{do: allow}]}, {addresses: [93.184.216.34], tunnel: true, rules: [{do: allow}]}]", policy.Probes{
			Unknown: []string{policy.UnusedName},
		}},
	} {
		want := c.want
		want.Refused, want.Dropped = always.Refused, always.Dropped
		if got := compile(t, ofTask(parse(t, "level: minimal\nnetwork: {"+c.network+"}"))).Probes(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: Probes = %+v, want %+v", name, got, want)
		}
	}
}

// The target of a link is checked if a pattern names the link's path.
func TestBehindSymbolicLinks(t *testing.T) {
	m := policy.Files{Deny: []string{"**/.ssh/**", "/workspace/a/*/key", "**/.env"}, ReadOnly: []string{"**/.git/hooks/**"}}.Matcher()
	for path, want := range map[string]bool{
		"/workspace/node_modules/pkg": false, "/workspace/b": false, "/workspace/.ssh": true, "/workspace/deep/.SSH": true,
		"/workspace/a": true, "/workspace/a/b": true, "/workspace/a/b/c": false, "/workspace/.git": true, "/workspace/.git/hooks/x/y": true, "/workspace/.env": true,
	} {
		if _, got := m.Behind(path); got != want {
			t.Errorf("Behind(%s) = %t, want %t", path, got, want)
		}
	}
	one, _ := m.Behind("/workspace/x/.git")
	two, _ := m.Behind("/workspace/y/z/.git")
	if three, _ := m.Behind("/workspace/x/.git/hooks"); one != two || one == three {
		t.Errorf("the keys of two .git directories are %q and %q, that of their hooks is %q; want only the first two equal", one, two, three)
	}
}
