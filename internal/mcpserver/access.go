package mcpserver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/fault"
)

type accessIn struct {
	target
	Kind   string  `json:"kind,omitempty" jsonschema:"What is requested: host, access to a host from now on."`
	Host   string  `json:"target" jsonschema:"The host, such as api.example.com or api.example.com:8443. One exact name; port 443 if absent."`
	Reason string  `json:"reason" jsonschema:"Why it is needed, in a sentence, for the person who decides."`
	Wait   float64 `json:"wait_seconds,omitempty" jsonschema:"How long to wait for the decision."`
}

type accessOut struct {
	State    string `json:"state" jsonschema:"approved, pending, denied or expired."`
	Approval string `json:"approval_id,omitempty"`
	Expires  string `json:"expires_at,omitempty"`
	Reason   string `json:"reason,omitempty" jsonschema:"The reason given by the person who decided."`
	Sandbox  string `json:"sandbox"`
}

const (
	defaultAccessWait = 20.0
	// maxAccessWait is how long one call waits for a decision. It is less than the minute after
	// which clients commonly give up.
	maxAccessWait = 50.0
)

func (w *view) addAccess() {
	add(w, tool{
		name: "request_access", title: "Ask for access", changes: true, repeats: true, reaches: true,
		text: "Ask a person to let the sandbox reach a host that the policy does not allow. The decision may take minutes: call again with the same target to continue waiting. " +
			"A denial is final; do not work around it.",
		shape: func(p map[string]*jsonschema.Schema) {
			oneOf(p["kind"], "host")
			defaultsTo(p["kind"], `"host"`)
			inRange(p["wait_seconds"], 0, maxAccessWait)
			defaultsTo(p["wait_seconds"], "20")
		},
	}, w.requestAccess)
}

func (w *view) requestAccess(ctx context.Context, c *call, in accessIn) (accessOut, error) {
	ask := api.AskAccess{Reason: prefix(strings.TrimSpace(inert(in.Reason)), 400), WaitSeconds: defaultAccessWait}
	if ask.Reason == "" {
		return accessOut{}, fault.New(fault.Invalid, "no_reason", "the person who decides needs a reason")
	}
	if in.Wait > 0 {
		ask.WaitSeconds = min(in.Wait, maxAccessWait)
	}
	var err error
	if ask.Host, ask.Port, err = hostPort(in.Host); err != nil {
		return accessOut{}, err
	}
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return accessOut{}, err
	}
	if c.answered() {
		out, err := c.afterDecision(ctx, b, ask)
		if w.tenant.o.Refused != nil && fault.CodeOf(err) == codeState {
			// The client answered another prompt than the one that it got.
			w.tenant.o.Refused("answer a prompt about "+ask.Host, codeState)
		}
		return out, err
	}
	here := c.canPromptUser()
	if here {
		ask.WaitSeconds = 0
	}
	defer c.progress(ctx, func() string { return "waiting for a person's decision" })()
	out, err := b.sb.AskAccess(ctx, ask)
	if err != nil {
		return accessOut{}, err
	}
	if here && out.State == string(approval.Pending) {
		c.promptUser(b, ask, out.Approval)
		return accessOut{}, nil
	}
	return c.reportAccess(ctx, b, ask, out), nil
}

// reportAccess returns the outcome of an approval request as the tool's result.
func (c *call) reportAccess(ctx context.Context, b *agentSandbox, ask api.AskAccess, got api.AskedAccess) accessOut {
	out := accessOut{State: got.State, Approval: got.Approval, Reason: inert(got.Reason), Sandbox: b.sb.ID()}
	where := fmt.Sprintf("%s:%d", ask.Host, ask.Port)
	switch approval.State(got.State) {
	case approval.Approved:
		c.printf("approved: the sandbox may reach %s\n", where)
	case approval.Denied:
		c.printf("denied: %s\n", firstNonEmpty(out.Reason, "without a reason"))
	case approval.Pending:
		until := ""
		if a, err := c.view.tenant.o.Client.Approval(ctx, got.Approval); err == nil {
			out.Expires = a.ExpiresAt.UTC().Format(time.RFC3339)
			until = ", until " + out.Expires
		}
		c.printf("pending as %s%s: no decision yet. A person decides with: crannog approve %s\n"+
			"Continue with work that does not need %s, and call request_access again to wait for the decision.\n", got.Approval, until, got.Approval, where)
	case approval.Expired, approval.Spent:
		c.printf("%s: it was not decided in time\n", got.State)
	}
	if out.Reason != "" && got.State == string(approval.Approved) {
		c.printf("%s\n", out.Reason)
	}
	return out
}

// hostPort parses a host with or without a port.
func hostPort(text string) (string, int, error) {
	host, port, found := strings.Cut(strings.TrimSpace(text), ":")
	n := 443
	if found {
		if _, err := fmt.Sscanf(port, "%d", &n); err != nil || fmt.Sprint(n) != port {
			n = 0
		}
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if !approval.Plain(host) || n < 1 || n > 65535 {
		return "", 0, fault.Newf(fault.Invalid, "invalid_target", "%q is not one exact host, such as api.example.com or api.example.com:8443", oneLine(text)).
			WithHint("no scheme, no path, no wildcard")
	}
	return host, n, nil
}
