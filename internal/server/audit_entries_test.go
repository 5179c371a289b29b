package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// do sends JSON over TCP with a key, or without one over the local socket, and expects a status.
func (s *testServer) do(status int, method, path, key, body string) map[string]any {
	s.t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	if key == "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", server.SocketPath(s.dir))
		}
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("X-Api-Key", key)
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var text bytes.Buffer
	var out map[string]any
	if _, err := text.ReadFrom(res.Body); err != nil {
		s.t.Fatal(err)
	}
	if res.StatusCode != status {
		s.t.Fatalf("%s %s: %d %s, want %d", method, path, res.StatusCode, text.String(), status)
	}
	if text.Len() > 0 && text.Bytes()[0] == '{' {
		if err := json.Unmarshal(text.Bytes(), &out); err != nil {
			s.t.Fatal(err)
		}
	}
	return out
}

// entries returns the audit log as "kind actor text", where text is the action or the name in the
// data.
func entries(t *testing.T, d *server.Server) (list []string) {
	t.Helper()
	err := d.Audit.Read(t.Context(), audit.Filter{}, false, func(e audit.Entry) error {
		var f struct{ Do, Outcome, Name, Reason string }
		if err := json.Unmarshal(e.Data, &f); err != nil {
			return err
		}
		list = append(list, strings.Join(strings.Fields(fmt.Sprint(e.Kind, " ", e.Actor, " ", f.Do, " ", f.Outcome, " ", f.Name, " ", f.Reason)), " "))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// P33: each action on any API is in the audit log once, with its actor. P34: the entries contain no
// values of secrets.
func TestActionsOfEachAPIAreRecorded(t *testing.T) {
	const canary = "canary-9f8e7d6c5b4a"
	s := serve(t)
	localActor := fmt.Sprintf("local:%d", os.Getuid())
	created := s.do(201, "POST", "/v1/keys", "", `{"name":"ci"}`)
	key, id := created["secret"].(string), created["id"].(string)
	keyActor := "key:" + id
	s.do(201, "POST", "/v1/secrets", "", `{"name":"TOKEN","value":"`+canary+`"}`)
	s.do(204, "DELETE", "/v1/secrets/TOKEN", "", "")
	s.do(404, "DELETE", "/v1/secrets/TOKEN", "", "")
	sandboxID := s.do(201, "POST", "/v1/sandboxes", key, `{"name":"web"}`)["id"].(string)
	s.do(200, "GET", "/v1/sandboxes/"+sandboxID, key, "")
	s.do(200, "POST", "/v1/sandboxes/"+sandboxID+"/timeout", key, `{"seconds":60}`)
	s.do(204, "DELETE", "/v1/sandboxes/"+sandboxID, key, "")
	other := s.do(201, "POST", "/v1/sandboxes", key, "{}")["id"].(string)
	s.do(204, "POST", "/sandboxes/"+other+"/timeout", key, `{"timeout":60}`)
	s.do(204, "DELETE", "/sandboxes/"+other, key, "")
	s.do(403, "GET", "/v1/keys", key, "")
	s.do(401, "GET", "/v1/sandboxes", "e2b_"+strings.Repeat("0", 40), "")
	s.do(401, "GET", "/sandboxes", "e2b_"+strings.Repeat("0", 40), "")
	s.do(200, "POST", "/v1/prune", "", "")
	s.do(204, "DELETE", "/v1/keys/"+id, "", "")
	want := []string{
		"server.started server",
		"key.made " + localActor + " ci",
		"secret.stored " + localActor + " stored TOKEN",
		"secret.removed " + localActor + " removed TOKEN",
		"secret.removed " + localActor + " removed TOKEN", "action " + localActor + " secret.removed secret_not_found",
		"sandbox.started " + keyActor + " web", "action " + keyActor + " create ok",
		"action " + keyActor + " timeout ok",
		"sandbox.ended " + keyActor + " killed", "action " + keyActor + " remove ok",
		"sandbox.started " + keyActor, "action " + keyActor + " create ok",
		"action " + keyActor + " timeout ok",
		"sandbox.ended " + keyActor + " killed", "action " + keyActor + " remove ok",
		"action " + keyActor + " GET /v1/keys denied",
		"action anonymous GET /v1/sandboxes unauthenticated",
		"action anonymous GET /sandboxes unauthenticated",
		"action " + localActor + " prune ok",
		"key.revoked " + localActor + " ci",
	}
	if got := entries(t, s.d); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the audit log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if v, err := s.d.Audit.Verify(t.Context()); err != nil || !v.OK || v.Entries != int64(len(want)) {
		t.Errorf("Verify: got %+v (%v), want %d valid entries", v, err, len(want))
	}
	if len(hosttest.Holding(t, filepath.Join(s.dir, "record"), canary)) > 0 {
		t.Error("the value of a secret is in the audit log")
	}
	if len(hosttest.Holding(t, filepath.Join(s.dir, "record"), "TOKEN")) == 0 {
		t.Error("the search for a secret's name finds nothing, so the search for its value proves nothing")
	}
}

// The audit log continues where the last process ended. A process that is no server writes into the
// same log.
func TestAuditLogContinuesAcrossProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	for range 2 {
		asServer := mustOpen(t, dir, true)
		withoutServer := mustOpen(t, dir, false)
		for _, d := range []*server.Server{asServer, withoutServer} {
			if _, err := d.Service.Create(t.Context(), sandbox.Principal{Local: true, UID: 7}, sandbox.CreateRequest{Template: "base", Ephemeral: true}); err != nil {
				t.Fatal(err)
			}
		}
		closeServer(t, withoutServer)
		closeServer(t, asServer)
	}
	d := mustOpen(t, dir, false)
	counts := make(map[audit.Kind]int)
	err := d.Audit.Read(t.Context(), audit.Filter{}, false, func(e audit.Entry) error {
		counts[e.Kind]++
		if e.Kind == audit.SandboxStarted {
			var f payload.Started
			if err := json.Unmarshal(e.Data, &f); err != nil || f.Level != "standard" || f.Policy == "" || f.Engine != "fake" || e.Actor != "local:7" {
				t.Errorf("entry of %s: got %+v (%v)", e.Actor, f, err)
			}
		}
		return nil
	})
	if err != nil || counts[audit.ServerStarted] != 2 || counts[audit.ServerStopped] != 2 || counts[audit.SandboxStarted] != 4 || counts[audit.SandboxEnded] != 4 {
		t.Errorf("got the entries %v (%v), want two starts and ends of servers and four of sandboxes", counts, err)
	}
}
