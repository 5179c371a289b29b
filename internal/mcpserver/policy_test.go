package mcpserver

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// The policy tool reports the network as it is now, and not as it was when the sandbox was first
// used.
func TestPolicyReportsTheCurrentNetwork(t *testing.T) {
	var lost atomic.Bool
	mux := http.NewServeMux()
	answer := func(route string, what func() any) {
		mux.HandleFunc("GET "+api.Prefix+route, func(w http.ResponseWriter, _ *http.Request) {
			if err := json.NewEncoder(w).Encode(what()); err != nil {
				t.Error(err)
			}
		})
	}
	answer("/sandboxes/dev", func() any {
		return api.Sandbox{ID: "dev", State: "running", Network: api.Network{Net: "policy", Attached: true, Lost: lost.Load()}}
	})
	answer("/sandboxes/dev/policy", func() any { return api.Policy{Level: "standard"} })
	s := httptest.NewServer(mux)
	defer s.Close()
	client, err := crannog.New(crannog.URL(s.URL))
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewTenant(Options{Client: client, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w := &view{View: View{Bound: "dev"}, tenant: d}
	for _, want := range []string{"Network: policy", "has lost its network"} {
		c := &call{view: w, req: &mcp.CallToolRequest{}}
		if _, err := w.policy(t.Context(), c, policyIn{}); err != nil || !strings.Contains(c.text.String(), want) {
			t.Errorf("%q is not in %q, %v", want, c.text.String(), err)
		}
		lost.Store(true)
	}
}
