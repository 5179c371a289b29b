package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/host/diskroom"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/admission"
	"github.com/crannog/crannog/internal/server/figures"
	"github.com/crannog/crannog/internal/telemetry"
)

// bindFigures connects the metrics with the parts of the server.
func (d *Server) bindFigures() {
	d.figures.Bind(figures.Sources{
		Version: d.options.Version, Started: time.Now(), Queue: d.starts, States: d.store.CountStates,
		Approvals: d.store.CountPendingApprovals, Pool: d.Service.Pool, Audit: d.Audit.Status, Packages: d.packageCache(),
		Disk: func() (free, total, floor int64, err error) {
			free, total, err = diskroom.Free(d.options.StateDir)
			return free, total, diskroom.Floor(total), err
		},
	})
}

// starts describes the queue of starts.
func (d *Server) starts() admission.Status {
	// The server's own user may always see it.
	q, err := d.Service.Queue(context.Background(), sandbox.Principal{Local: true})
	if err != nil {
		d.options.Log.Warn("the queue of starts is unknown", "err", err)
	}
	return q.Status
}

// observed serves a request of one of the APIs, or into a sandbox, and measures it.
func (s *surfaces) observed(surface string, w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
	s.d.options.Tracing.ServeRequest(surface, s.d.figures.Requests, w, r, serve)
}

// decision is what of a flow's entry is counted.
type decision struct {
	Time   time.Time     `json:"time"`
	Kind   egress.Kind   `json:"kind"`
	Begins bool          `json:"begins"`
	Effect egress.Effect `json:"effect"`
	Rule   string        `json:"rule"`
	Took   time.Duration `json:"took_ns"`
	Probe  bool          `json:"probe"`
}

// countDecision counts the decision in a flow's entry, and adds a span for it.
func (d *Server) countDecision(e audit.Entry) {
	var f decision
	if json.Unmarshal(e.Data, &f) != nil || f.Begins || f.Probe || f.Kind == egress.KindLink {
		return
	}
	// A sandbox may have taken over the gateway, which wrote the entry. So only words of fixed lists
	// become labels and attributes.
	kind, effect := oneOf(f.Kind, flowKinds), oneOf(f.Effect, effects)
	rule := ruleKind(f.Rule)
	d.figures.Decisions.Add(kind, effect, rule)
	d.options.Tracing.Decided(telemetry.Decision{Sandbox: e.Sandbox, Flow: kind, Effect: effect, Rule: rule, At: within(f.Time, e.Time), Took: max(0, min(f.Took, longestFlow))})
}

// longestFlow bounds the time of a flow in a span.
const longestFlow = 24 * time.Hour

// within returns the time of a flow, or that of its entry if the first is not plausible.
func within(flow, entry time.Time) time.Time {
	if flow.After(entry) || flow.Before(entry.Add(-longestFlow)) {
		return entry
	}
	return flow
}

var (
	flowKinds = []egress.Kind{
		egress.KindDNS, egress.KindTCP, egress.KindTLS, egress.KindTunnel, egress.KindConnect, egress.KindHTTP,
		egress.KindWebSocket, egress.KindGit, egress.KindPublish, egress.KindPacket,
	}
	effects = []egress.Effect{egress.Allow, egress.Ask, egress.Deny}
)

func oneOf[T ~string](value T, list []T) string {
	if slices.Contains(list, value) {
		return string(value)
	}
	return "other"
}

// ruleKinds are the parts of rules' names before the first dot or colon.
var ruleKinds = []string{"host", "network", "floor", "identity", "packages", "git", "secret", "connection", "filesystem", "link"}

// isWord reports whether text is a short word of lower case letters and underscores.
func isWord(text string) bool {
	return text != "" && len(text) <= 30 && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// ruleKind returns a rule's kind: without names of hosts and of the policy's own rules, which tell
// what somebody works on.
func ruleKind(rule string) string {
	name, _, named := strings.Cut(rule, ":")
	first, second, _ := strings.Cut(name, ".")
	if !slices.Contains(ruleKinds, first) {
		return "other"
	}
	if named || !isWord(second) {
		return first
	}
	return first + "." + second
}
