package e2b_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// reaches reports whether a sandbox's policy lets a connection through.
func reaches(t testing.TB, sandboxes *memory, id, host string) bool {
	t.Helper()
	p, err := sandboxes.Policy(t.Context(), sandbox.Principal{KeyID: "k1"}, id)
	if err != nil {
		t.Fatal(err)
	}
	return p.Connect(host, 443).Effect == egress.Allow
}

func infoOf(t testing.TB, h http.Handler, id string) (internet bool, network map[string]any) {
	t.Helper()
	w := do(h, "GET", "/sandboxes/"+id, "")
	if w.Code != http.StatusOK {
		t.Fatalf("info: %d %s", w.Code, w.Body)
	}
	got := object(t, w)
	return got["allowInternetAccess"].(bool), got["network"].(map[string]any)
}

func decoded(t testing.TB, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCreateNetwork(t *testing.T) {
	for _, c := range []struct {
		name, fields      string
		internet          bool
		reachable, denied string
		lists             string // of info, besides allowPublicTraffic
	}{
		{"no fields: open", ``, true, "a.test 8.8.8.8", "", `{}`},
		{"the flag of old clients", `,"allow_internet_access":true`, true, "a.test", "", `{}`},
		{"null fields: open", `,"allow_internet_access":null,"network":{"allowOut":null,"denyOut":null,"rules":null,"egressProxy":null}`, true, "a.test", "", `{}`},
		{"no internet", `,"allow_internet_access":false`, false, "", "a.test 8.8.8.8", `{}`},
		{"no internet, some allowed", `,"allow_internet_access":false,"network":{"allowOut":["A.test","1.1.1.1"]}`, false, "a.test 1.1.1.1", "b.test 1.1.1.2", `{"allowOut":["A.test","1.1.1.1"]}`},
		{"lists", `,"network":{"allowOut":["*.b.test"],"denyOut":["0.0.0.0/0","9.9.9.9"]}`, false, "x.b.test", "b.test 9.9.9.9", `{"allowOut":["*.b.test"],"denyOut":["0.0.0.0/0","9.9.9.9"]}`},
		{"some denied", `,"network":{"denyOut":["8.8.8.0/24"]}`, true, "a.test 8.8.4.4", "8.8.8.8", `{"denyOut":["8.8.8.0/24"]}`},
		{"rules allow no hosts", `,"allow_internet_access":false,"network":{"rules":{"a.test":[{}]}}`, false, "", "a.test", `{"rules":{"a.test":[]}}`},
	} {
		sandboxes, h := newAPI(t)
		id := create(t, h, `{"templateID":"base"`+c.fields+`}`)
		if sandboxes.last.Access.Net != sandbox.NetPolicy {
			t.Errorf("%s: net %q; without a network attachment no host could be allowed later", c.name, sandboxes.last.Access.Net)
		}
		internet, network := infoOf(t, h, id)
		delete(network, "allowPublicTraffic")
		if internet != c.internet || !reflect.DeepEqual(any(network), decoded(t, c.lists)) {
			t.Errorf("%s: info shows %v and %v", c.name, internet, network)
		}
		for host := range strings.FieldsSeq(c.reachable) {
			if !reaches(t, sandboxes, id, host) {
				t.Errorf("%s: %s is not reached", c.name, host)
			}
		}
		for host := range strings.FieldsSeq(c.denied) {
			if reaches(t, sandboxes, id, host) {
				t.Errorf("%s: %s is reached", c.name, host)
			}
		}
	}
}

func TestInvalidNetworkIsRejected(t *testing.T) {
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base","allow_internet_access":false}`)
	made := sandboxes.made
	long := strings.Repeat("x", 2049)
	for _, c := range []struct{ fields, code, text string }{
		{`"denyOut":["a.test"]`, "invalid_network", "invalid denied CIDR a.test"},
		{`"denyOut":["1.2.3.4/33"]`, "invalid_network", "invalid denied CIDR 1.2.3.4/33"},
		{`"allowOut":["a.test"]`, "invalid_network", "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic."},
		{`"allowOut":["*"],"denyOut":["0.0.0.0/0"]`, "invalid_network", "invalid allowed domain *"},
		{`"rules":{"*.a.test":[]}`, "invalid_network", "is not an exact domain"},
		{`"rules":{"a.test":[{"transform":{}},{"transform":{}}]}`, "invalid_network", "at most one transform"},
		{`"rules":{"a.test":[{"transform":{"headers":{"X":"` + long + `"}}}]}`, "invalid_network", "at most 2048"},
		{`"rules":{"a.test":[{"transform":{"headers":{"Host":"b.test"}}}]}`, "invalid_network", "cannot have the header"},
		{`"rules":{"a.test":[{"transform":{"headers":{"X":"[sealed]"}}}]}`, "invalid_network", "hidden value"},
		{`"rules":{"a.test":[{"transform":{"headers":{"X":"${e2b.identity.tokens.A}"}}}]}`, "placeholder_unsupported", "the only placeholder is ${e2b.secrets.NAME}"},
		{`"rules":[]`, "field_invalid", ""},
		{`"allowOut":"a.test"`, "field_invalid", ""},
		{`"egressProxy":{"address":"x:1"}`, "not_supported", "an egress proxy is not supported by this server yet"},
	} {
		status := http.StatusBadRequest
		if c.code == "not_supported" || c.code == "placeholder_unsupported" {
			status = http.StatusNotImplemented
		}
		text := c.text
		if text == "" {
			text = "wrong type"
		}
		for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
			wantFailure(t, do(h, "POST", path, `{"templateID":"base","network":{`+c.fields+`}}`), status, c.code, text)
		}
		wantFailure(t, do(h, "PUT", "/sandboxes/"+id+"/network", `{`+c.fields+`}`), status, c.code, text)
	}
	if sandboxes.made != made || reaches(t, sandboxes, id, "a.test") {
		t.Error("a rejected request created a sandbox or opened the network")
	}
}

func TestSetNetworkReplacesAllFields(t *testing.T) {
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base","allow_internet_access":false}`)
	put := func(body string) {
		t.Helper()
		if w := do(h, "PUT", "/sandboxes/"+id+"/network", body); w.Code != http.StatusNoContent || w.Body.Len() > 0 {
			t.Fatalf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	put(`{"allowOut":["a.test"],"denyOut":["0.0.0.0/0"]}`)
	if !reaches(t, sandboxes, id, "a.test") || reaches(t, sandboxes, id, "b.test") {
		t.Error("the allow list is not applied")
	}
	put(`{"denyOut":["8.8.8.8"]}`)
	if !reaches(t, sandboxes, id, "b.test") || reaches(t, sandboxes, id, "8.8.8.8") {
		t.Error("an absent list was not cleared")
	}
	if internet, network := infoOf(t, h, id); !internet || network["allowOut"] != nil || len(network["denyOut"].([]any)) != 1 {
		t.Errorf("info shows %v %v", internet, network)
	}
	put(`{"allow_internet_access":false}`)
	if reaches(t, sandboxes, id, "b.test") {
		t.Error("b.test can still be reached without internet access")
	}
	put(`{}`)
	if !reaches(t, sandboxes, id, "8.8.8.8") {
		t.Error("an empty update did not clear all lists")
	}
	sandboxes.list[0].Access.Level = "strict"
	put(`{}`)
	if sandboxes.list[0].Access.Level != "strict" {
		t.Error("the call removed the sandbox's level")
	}
	// A sandbox of another key gives the same error as one that does not exist.
	for _, c := range [][2]string{{unknownID, goodKey}, {id, otherKey}} {
		wantFailure(t, do(h, "PUT", "/sandboxes/"+c[0]+"/network", `{}`, "X-API-KEY", c[1]), http.StatusNotFound, "sandbox_not_found", "doesn't exist")
	}
	sandboxes.fail = fault.New(fault.Conflict, "network_fixed", "made without a network")
	wantFailure(t, do(h, "PUT", "/sandboxes/"+id+"/network", `{}`), http.StatusConflict, "network_fixed", "")
}

// TestFixedHeaderValuesAreHidden checks that a fixed value of a header is passed to the service,
// which encrypts it, and appears nowhere else.
func TestFixedHeaderValuesAreHidden(t *testing.T) {
	sandboxes, h := newAPI(t)
	const value = "Bearer canary-of-a-fixed-header"
	rules := `"rules":{"a.test":[{"transform":{"headers":{"Authorization":"` + value + `","X-Key":"k ${e2b.secrets.KEY}"}}}]}`
	id := create(t, h, `{"templateID":"base","network":{`+rules+`}}`)
	check := func() {
		t.Helper()
		access := sandboxes.last.Access
		if len(access.Values) != 1 || access.Values[policy.OwnPrefix+"1"].Reveal() != value {
			t.Errorf("values %v", access.Values)
		}
		stored, err := json.Marshal(access)
		if err != nil || strings.Contains(string(stored), "canary") {
			t.Errorf("%v: the stored access contains the value: %s", err, stored)
		}
		binds := access.Documents[0].Secrets.Bind
		if len(binds) != 2 || binds[0].Name != policy.OwnPrefix+"1" || binds[1].Name != "KEY" || binds[1].Format != "k {}" {
			t.Errorf("bound %+v", binds)
		}
		_, network := infoOf(t, h, id)
		want := decoded(t, `{"a.test":[{"transform":{"headers":{"Authorization":"[sealed]","X-Key":"k ${e2b.secrets.KEY}"}}}]}`)
		if !reflect.DeepEqual(network["rules"], want) {
			t.Errorf("info shows %v", network["rules"])
		}
	}
	check()
	if w := do(h, "PUT", "/sandboxes/"+id+"/network", `{`+rules+`}`); w.Code != http.StatusNoContent {
		t.Fatalf("PUT /sandboxes/*/network: got %v", w.Body)
	}
	check()
}

// TestInfoShowsEffectiveInternetAccess checks that info shows the access in force, not the
// requested one.
func TestInfoShowsEffectiveInternetAccess(t *testing.T) {
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base","allow_internet_access":true}`)
	if internet, _ := infoOf(t, h, id); !internet {
		t.Error("info shows no internet access for an open sandbox")
	}
	sandboxes.above = []policy.Layer{{Kind: policy.LayerOrganisation, Document: policy.Document{
		Policy: "v1", Name: "org", Network: policy.Network{Unlisted: "deny"},
	}}}
	if internet, _ := infoOf(t, h, id); internet || reaches(t, sandboxes, id, "a.test") {
		t.Error("info shows internet access that the organisation's policy denies")
	}
	sandboxes.above = nil
	sandboxes.list[0].Unlinked = true
	if internet, _ := infoOf(t, h, id); internet {
		t.Error("info shows internet access for a sandbox that lost its network attachment")
	}
	sandboxes.list[0].Unlinked, sandboxes.list[0].Access = false, sandbox.Access{Net: sandbox.NetNone}
	if internet, _ := infoOf(t, h, id); internet {
		t.Error("info shows internet access for a sandbox without a network")
	}
}
