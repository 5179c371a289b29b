package mcpserver

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
)

// stateAPI is an API of sandboxes that have the given states, by ID.
type stateAPI map[string]string

func (s stateAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	id := path.Base(r.URL.Path)
	switch state := s[id]; {
	case s["all"] == "down":
		w.WriteHeader(http.StatusServiceUnavailable)
	case id == "sandboxes":
		var list api.SandboxList
		for id, state := range s {
			if slices.Contains(strings.Split(r.URL.Query().Get("state"), ","), state) && id != "late" {
				list.Sandboxes = append(list.Sandboxes, api.Sandbox{ID: id, State: state})
			}
		}
		_ = json.NewEncoder(w).Encode(list)
	case state == "":
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(api.Problem{Kind: "not_found", Code: "sandbox_not_found", Status: http.StatusNotFound})
	default:
		_ = json.NewEncoder(w).Encode(api.Sandbox{ID: id, State: state})
	}
}

// A Tenant stores nothing about sandboxes that ended by their timeout, although no tool ended them.
func TestEndedSandboxesAreForgotten(t *testing.T) {
	known := stateAPI{"runs": "running", "sleeps": "paused", "ended": "stopped", "late": "running", "ending": "stopping"}
	srv := httptest.NewServer(known)
	defer srv.Close()
	h, err := NewHTTP(HTTPOptions{
		Authenticate: func(*http.Request) (string, error) { return "k", nil },
		Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", srv.Listener.Addr().String())
		},
		Refused: func(_, _, _ string) {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	d, err := h.tenant("k")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"runs", "sleeps", "ended", "gone", "late", "ending"} {
		d.sandboxes[id] = &agentSandbox{tenant: d.Tenant, jobs: map[int]*job{}}
	}
	released := 0
	d.created["ended"], d.created["copy"], d.defaultID = func() { released++ }, func() { released++ }, "gone"
	known["all"] = "down"
	h.sweep(t.Context())
	if len(d.sandboxes) != 6 || len(d.created) != 2 {
		t.Errorf("state was dropped although the API does not answer: %v", d.sandboxes)
	}
	known["all"] = ""
	h.sweep(t.Context())
	if left := slices.Sorted(maps.Keys(d.sandboxes)); strings.Join(left, " ") != "ending late runs sleeps" {
		t.Errorf("%v are left", left)
	}
	if len(d.created) != 0 || released != 2 || d.defaultID != "" {
		t.Errorf("%d created, %d holds released, default %q", len(d.created), released, d.defaultID)
	}
}

// The limit of an agent's sandboxes counts existing ones, those that are being created, and the
// default one, but not those that have ended.
func TestSandboxesOfAnAgentAreCounted(t *testing.T) {
	known := stateAPI{"default": "running"}
	srv := httptest.NewServer(known)
	defer srv.Close()
	client, err := crannog.New(crannog.URL(srv.URL))
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewTenant(Options{Client: client, Log: slog.New(slog.DiscardHandler), Name: "default"})
	if err != nil {
		t.Fatal(err)
	}
	d.defaultID = "default"
	for i := range maxSandboxes - 1 {
		known["b"+strconv.Itoa(i)], d.created["b"+strconv.Itoa(i)] = "running", func() {}
	}
	if _, err := d.reservePlaces(t.Context(), 1); fault.CodeOf(err) != "too_many_sandboxes" {
		t.Errorf("with %d sandboxes and the default one: %v", len(d.created), err)
	}
	known["b3"], known["b5"] = "stopped", ""
	releaseFirst, err := d.reservePlaces(t.Context(), 1)
	if err != nil {
		t.Fatalf("two have ended: %v", err)
	}
	releaseSecond, err := d.reservePlaces(t.Context(), 1)
	if err != nil {
		t.Fatalf("two have ended: %v", err)
	}
	if _, err := d.reservePlaces(t.Context(), 1); fault.CodeOf(err) != "too_many_sandboxes" {
		t.Errorf("two are being created: %v", err)
	}
	releaseFirst()
	releaseSecond()
	if release, err := d.reservePlaces(t.Context(), 2); err != nil {
		t.Errorf("none is being created: %v", err)
	} else {
		release()
	}
}
