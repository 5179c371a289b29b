package e2b_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/sandbox"
)

// TestCreateWithAccess checks that a caller that uses the fields of /v1 gets the requested access,
// and not the open internet of a request without them.
func TestCreateWithAccess(t *testing.T) {
	for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
		for _, c := range []struct {
			fields string
			want   sandbox.Access
			hosts  []string // of the document
		}{
			{`"access":{"level":"strict"}`, sandbox.Access{Level: "strict"}, nil},
			{`"access":{}`, sandbox.Access{}, nil},
			// Clients of the first generation always send this field.
			{`"access":{"level":"light","net":"dev"},"allow_internet_access":true,"network":{"allowOut":[],"denyOut":null,"allowPublicTraffic":false}`, sandbox.Access{Level: "light", Net: "dev"}, nil},
			{`"access":{"allow":["a.test"],"policy":"policy: v1\nnetwork: {hosts: [{host: b.test, rules: [{id: r, do: allow}]}]}\n"}`, sandbox.Access{Allow: []string{"a.test"}}, []string{"b.test"}},
			{`"access":null,"level":null,"policy":null`, sandbox.Access{Net: "policy"}, nil}, // null means absent
		} {
			sandboxes, h := newAPI(t)
			w := do(h, "POST", path, `{"templateID":"base",`+c.fields+`}`)
			if w.Code != http.StatusCreated {
				t.Errorf("%s %s: %d %s", path, c.fields, w.Code, w.Body)
				continue
			}
			got := sandboxes.last.Access
			var hosts []string
			for _, d := range got.Documents {
				for _, h := range d.Network.Hosts {
					hosts = append(hosts, h.Host)
				}
			}
			if got.Level != c.want.Level || got.Net != c.want.Net || !slices.Equal(got.Allow, c.want.Allow) || !slices.Equal(hosts, c.hosts) {
				t.Errorf("%s %s: the service got %+v", path, c.fields, got)
			}
		}
		sandboxes, h := newAPI(t)
		for _, c := range []struct{ fields, code, text string }{
			{`"level":"strict"`, "field_misplaced", "access"},
			{`"policy":"policy: v1"`, "field_misplaced", "access"},
			{`"Level":"strict"`, "field_misplaced", "access"},
			{`"access":{"level":"strict"},"policy":{}`, "field_misplaced", "access"},
			{`"access":"strict"`, "field_invalid", "access"},
			{`"access":{"levl":"strict"}`, "field_invalid", "levl"},
			{`"access":{"level":7}`, "field_invalid", "level"},
			{`"access":{"policy":"policy: v1\nnet: {}\n"}`, "policy_invalid", "net"},
			{`"access":{"artifacts":["[a"]}`, "policy_invalid", ""},
			{`"access":{},"allow_internet_access":false`, "access_twice", ""},
			{`"access":{},"network":{"allowOut":["1.1.1.1"]}`, "access_twice", ""},
			{`"access":{},"network":{"denyOut":["0.0.0.0/0"]}`, "access_twice", ""},
			{`"access":{},"network":{"rules":{"a.test":[{}]}}`, "access_twice", ""},
			{`"access":{},"network":{"egressProxy":{"address":"x:1"}}`, "access_twice", ""},
		} {
			wantFailure(t, do(h, "POST", path, `{"templateID":"base",`+c.fields+`}`), http.StatusBadRequest, c.code, c.text)
		}
		if sandboxes.made != 0 {
			t.Errorf("%d sandboxes were created by rejected requests, want none", sandboxes.made)
		}
	}
}

// TestOtherCallsRejectAccess checks that calls about an existing sandbox reject these fields,
// because they would have no effect.
func TestOtherCallsRejectAccess(t *testing.T) {
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base","allow_internet_access":false}`)
	for _, body := range []string{`{"access":{"level":"strict"}}`, `{"level":"strict"}`, `{"policy":"policy: v1"}`} {
		for method, path := range map[string]string{"PUT": "/network", "POST": "/fork"} {
			wantFailure(t, do(h, method, "/sandboxes/"+id+path, body), http.StatusBadRequest, "field_misplaced", "")
		}
	}
	if sandboxes.forks != 0 || reaches(t, sandboxes, id, "a.test") {
		t.Error("a rejected request forked a sandbox or changed its network")
	}
}
