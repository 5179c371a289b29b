package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/diskroom"
	"github.com/crannog/crannog/internal/telemetry"
)

// Paths that need no key, for a supervisor, a load balancer or a monitoring system.
const (
	livePath  = "/healthz" // the process answers
	readyPath = "/readyz"  // new sandboxes can be created
)

// readyTimeout limits the checks of one request.
const readyTimeout = 2 * time.Second

// readiness is the answer of /readyz. The reasons are codes: the answer needs no key, and messages
// have paths of this machine. The server's log and crannog doctor have the rest.
type readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []reason `json:"reasons,omitempty"`
}

type reason struct {
	Check string `json:"check"`
	Code  string `json:"code"`
}

func (d *Server) health(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.URL.Path == livePath {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n")) // an error means that the client has left
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	answer := readiness{Reasons: d.unready(ctx)}
	answer.Ready = len(answer.Reasons) == 0
	w.Header().Set("Content-Type", "application/json")
	if !answer.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// unready returns why no sandbox can be created now. It repeats none of the checks of the engines,
// which crannog serve made when it started and which start processes.
func (d *Server) unready(ctx context.Context) []reason {
	var reasons []reason
	for _, c := range []struct {
		name  string
		check func() error
	}{
		{"shutdown", func() error {
			if d.draining.Load() {
				return fault.New(fault.Unavailable, "shutting_down", "the server is shutting down")
			}
			return nil
		}},
		{"database", func() error { return d.store.Check(ctx) }},
		{"audit_log", func() error { return d.Audit.Status().Failing }},
		{"disk", func() error { return diskroom.CheckFloor(d.options.StateDir) }},
		{"queue", func() error {
			if q := d.starts(); q.MaxWaiting > 0 && q.Waiting >= q.MaxWaiting {
				return fault.New(fault.Exhausted, "queue_full", "no further request can wait for a sandbox")
			}
			return nil
		}},
	} {
		if err := c.check(); err != nil {
			d.options.Log.Warn("not ready", "check", c.name, "err", err)
			reasons = append(reasons, reason{c.name, telemetry.CodeOf(err)})
		}
	}
	return reasons
}
