package v1

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/flows"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/frontend/denial"
	"github.com/crannog/crannog/internal/sandbox"
)

// Access changes and shows what a sandbox may reach.
type Access interface {
	// SetAccess sets the access of a running sandbox to the result of change, which gets the
	// present access.
	SetAccess(ctx context.Context, caller sandbox.Principal, ref string, change func(sandbox.Access) (sandbox.Access, error)) (sandbox.Sandbox, error)
	// Policy returns the policy that governs a sandbox.
	Policy(ctx context.Context, caller sandbox.Principal, ref string) (*policy.Policy, error)
	// AskAccess requests approval for a running sandbox to reach a host.
	AskAccess(ctx context.Context, caller sandbox.Principal, ref string, w sandbox.HostRequest) (egress.ApprovalOutcome, error)
}

// NetworkLog reads the network logs of sandboxes.
type NetworkLog interface {
	// Flows calls yield for each record of a sandbox's network log; see flows.Dir.Read.
	Flows(ctx context.Context, caller sandbox.Principal, ref string, f flows.Filter, follow bool, yield func(egress.Record) error) error
	// FlowSize returns the present size of a sandbox's network log, for flows.Filter. It reads
	// nothing, and accepts only an ID.
	FlowSize(id string) int64
	// Asked returns the names that programs of a running sandbox without a network have looked up
	// since a time.
	Asked(ctx context.Context, caller sandbox.Principal, ref string, since time.Time) ([]string, error)
}

// accessHandlers serves the access and the network logs of sandboxes.
type accessHandlers struct {
	finder     Finder
	access     Access
	networkLog NetworkLog
	log        *slog.Logger
}

func (h *accessHandlers) register(r *registry) {
	register(r, op("sandboxes-access", "PUT", "/sandboxes/{id}/access", "Replace the network access of a running sandbox"), h.setAccess)
	register(r, op("sandboxes-access-ask", "POST", "/sandboxes/{id}/access/ask", "Request access to a host for a running sandbox from a person"), h.askAccess)
	register(r, op("sandboxes-policy", "GET", "/sandboxes/{id}/policy", "Get the effective policy of a sandbox, as one document and by layers"), h.policy)
	register(r, op("sandboxes-flows", "GET", "/sandboxes/{id}/network/log", "List the flows of a sandbox with their decisions"), h.flows)
}

func fromAccess(in *api.Access) (sandbox.Access, error) {
	if in == nil {
		return sandbox.Access{}, nil
	}
	return sandbox.Access{Level: in.Level, Net: sandbox.Net(in.Net), Allow: in.Allow}.With(in.Policy, in.Artifacts)
}

func toNetwork(sb sandbox.Sandbox) api.Network {
	attached := sb.Access.Net != sandbox.NetNone
	return api.Network{
		Attached: attached, Linked: attached, Net: string(sb.Access.Net), Level: sb.PolicyLevel,
		Policy: sb.PolicyDigest, Lost: sb.Unlinked,
		Attachment: string(sb.Attachment), NotCarried: sb.Attachment.NotCarried(),
	}
}

// toChecks converts the readiness probe's results. All of them are positive, because a sandbox with
// a failed check never becomes ready.
func toChecks(sb sandbox.Sandbox) []api.Check {
	if sb.State == sandbox.Creating {
		return nil
	}
	out := make([]api.Check, 0, len(sb.Checked))
	for _, c := range sb.Checked {
		out = append(out, api.Check{Check: c, Holds: true})
	}
	return out
}

type accessInput struct {
	Ref
	Body api.Access
}

func (h *accessHandlers) setAccess(ctx context.Context, caller sandbox.Principal, in *accessInput) (*sandboxBody, error) {
	access, err := fromAccess(&in.Body)
	if err != nil {
		return nil, err
	}
	sb, err := h.access.SetAccess(ctx, caller, in.ID, func(sandbox.Access) (sandbox.Access, error) { return access, nil })
	if err != nil {
		return nil, err
	}
	return &sandboxBody{withTokens(caller, toSandbox(sb), sb)}, nil
}

type policyOutput struct{ Body api.Policy }

func (h *accessHandlers) policy(ctx context.Context, caller sandbox.Principal, in *Ref) (*policyOutput, error) {
	p, err := h.access.Policy(ctx, caller, in.ID)
	if err != nil {
		return nil, err
	}
	out := api.Policy{Digest: p.Digest(), Level: p.Level()}
	if out.Document, err = p.Document().YAML(); err != nil {
		return nil, err
	}
	for _, l := range p.Layers() {
		text, err := l.Document.YAML()
		if err != nil {
			return nil, err
		}
		out.Layers = append(out.Layers, api.PolicyLayer{Kind: l.Kind, Document: text})
	}
	return &policyOutput{out}, nil
}

type flowsInput struct {
	Ref
	Denied bool    `query:"denied" doc:"Only denials."`
	After  uint64  `query:"after" doc:"Only flows with a greater seq."`
	Follow bool    `query:"follow" doc:"Stream flows as NDJSON until the sandbox ends."`
	Newest bool    `query:"newest" doc:"Only the last flow so far."`
	Within float64 `query:"asked_within_seconds" minimum:"0" doc:"For a sandbox without a network: only names that programs tried to resolve in the last N seconds."`
}

// Limits of an answer that is not a stream. A client continues after the last flow. Without limits,
// a sandbox could fill its file with the longest possible flows, and every caller could load all of
// them into the server's memory.
const (
	maxFlows     = 10_000
	maxFlowBytes = 8 << 20
)

type flowsOutput struct {
	ContentType string `header:"Content-Type"`
	Body        func(huma.Context)
}

func (h *accessHandlers) flows(ctx context.Context, caller sandbox.Principal, in *flowsInput) (*flowsOutput, error) {
	filter := flows.Filter{Denied: in.Denied, After: in.After, Newest: in.Newest}
	within, err := duration("asked_within_seconds", in.Within)
	if err != nil {
		return nil, err
	}
	var since time.Time
	if within > 0 {
		since = time.Now().Add(-within)
	}
	sb, err := h.finder.Get(ctx, caller, in.ID)
	if err != nil {
		return nil, err
	}
	if in.Follow {
		return &flowsOutput{"application/x-ndjson", func(c huma.Context) { h.followFlows(c, caller, sb.ID, filter) }}, nil
	}
	asked, err := h.networkLog.Asked(ctx, caller, sb.ID, since)
	if err != nil {
		return nil, err
	}
	return &flowsOutput{"application/json", func(c huma.Context) {
		err := writeFlows(c.BodyWriter(), asked, func(yield func(egress.Record) error) error {
			return h.networkLog.Flows(c.Context(), caller, sb.ID, filter, false, yield)
		})
		if err != nil && c.Context().Err() == nil {
			// Without its end the answer is not valid JSON, so that no client takes it for
			// complete.
			h.log.Warn("flow list is incomplete", "sandbox", sb.ID, "err", err)
		}
	}}, nil
}

// errPageFull ends the reading of flows.
var errPageFull = errors.New("the answer is long enough")

// writeFlows writes one flow at a time, as it is read.
func writeFlows(w io.Writer, asked []string, read func(yield func(egress.Record) error) error) error {
	return writeWithPlaceholders(w, api.FlowList{Records: []api.FlowRecord{}, Asked: asked}, []placeholder{{`"records":[]`, func() error {
		if _, err := io.WriteString(w, `"records":[`); err != nil {
			return err
		}
		count, size := 0, 0
		err := read(func(r egress.Record) error {
			piece, err := encode(denial.Flow(r))
			if err != nil {
				return err
			}
			// An answer always contains at least one flow. Otherwise a client could not continue
			// after it.
			if size += len(piece); count == maxFlows || count > 0 && size > maxFlowBytes {
				return errPageFull
			}
			if count++; count > 1 {
				piece = append([]byte{','}, piece...)
			}
			_, err = w.Write(piece)
			return err
		})
		if err != nil && !errors.Is(err, errPageFull) {
			return err
		}
		_, err = io.WriteString(w, "]")
		return err
	}}})
}

// followFlows streams flows. A failure ends the stream: its header has been sent.
func (h *accessHandlers) followFlows(c huma.Context, caller sandbox.Principal, id string, filter flows.Filter) {
	c.SetHeader("Content-Type", "application/x-ndjson")
	c.SetStatus(http.StatusOK)
	flusher, _ := c.BodyWriter().(http.Flusher)
	if flusher != nil {
		flusher.Flush()
	}
	out := json.NewEncoder(c.BodyWriter())
	err := h.networkLog.Flows(c.Context(), caller, id, filter, true, func(r egress.Record) error {
		if err := out.Encode(denial.Flow(r)); err != nil {
			return err
		}
		if flusher != nil {
			flusher.Flush()
		}
		return nil
	})
	if err != nil && c.Context().Err() == nil {
		h.log.Warn("stream of flows ended early", "sandbox", id, "err", err)
	}
}
