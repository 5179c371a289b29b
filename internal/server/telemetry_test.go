package server

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/audit"
)

// TestRulesAreShortened checks that no text of a gateway reaches labels, which a sandbox may have
// taken over (P97).
func TestRulesAreShortened(t *testing.T) {
	for rule, want := range map[string]string{
		"host:secret.example/read": "host", "network.unlisted": "network.unlisted", "floor.address": "floor.address",
		"canary": "other", "": "other", "network.Canary text": "network", "secret:name": "secret", "host.a:b": "host",
	} {
		if got := ruleKind(rule); got != want {
			t.Errorf("%q: got %q, want %q", rule, got, want)
		}
	}
	d := openFake(t)
	data, err := json.Marshal(map[string]any{"kind": "canary-kind", "effect": "canary-effect", "rule": "canary-rule", "host": "canary-host"})
	if err != nil {
		t.Fatal(err)
	}
	d.countDecision(audit.Entry{Data: data})
	d.countDecision(audit.Entry{Data: json.RawMessage(`{"kind":"http","effect":"deny","rule":"network.unlisted"}`)})
	d.countDecision(audit.Entry{Data: json.RawMessage(`{"kind":"http","effect":"allow","rule":"host:a","begins":true}`)})
	got, err := json.Marshal(d.figures.Decisions.Family())
	if err != nil || strings.Contains(string(got), "canary") || !strings.Contains(string(got), "network.unlisted") || strings.Contains(string(got), "allow") {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestReadyReportsReasons checks that a server that shuts down is not ready, and still alive.
func TestReadyReportsReasons(t *testing.T) {
	d := openFake(t)
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		d.surfaces().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code, w.Body.String()
	}
	if code, text := get("/readyz"); code != 200 || text != "{\"ready\":true}\n" {
		t.Errorf("got %d %s", code, text)
	}
	d.draining.Store(true)
	if code, text := get("/readyz"); code != 503 || text != "{\"ready\":false,\"reasons\":[{\"check\":\"shutdown\",\"code\":\"shutting_down\"}]}\n" {
		t.Errorf("got %d %s", code, text)
	}
	if code, text := get("/healthz"); code != 200 || text != "ok\n" {
		t.Errorf("got %d %s", code, text)
	}
}
