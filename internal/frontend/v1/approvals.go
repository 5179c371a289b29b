package v1

import (
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// approvalHandlers serves requests for approval.
type approvalHandlers struct {
	finder    Finder
	approvals *approval.Service
	log       *slog.Logger
}

// register adds no operation if there are no approval requests. The operations have the same
// callers as all others: keys and the machine's user. A program inside is neither, and this API
// does not accept a sandbox's own tokens.
func (h *approvalHandlers) register(r *registry) {
	if h.approvals == nil {
		return
	}
	register(r, op("approvals-list", "GET", "/approvals", "List approval requests"), h.listApprovals)
	events := op("approvals-events", "GET", "/approvals/events", "Stream approval requests and decisions")
	events.Description = "Server-sent events: first the pending requests, then each change. With Last-Event-ID the stream continues after that event instead."
	events.Responses = map[string]*huma.Response{"200": {
		Description: "OK",
		Content: map[string]*huma.MediaType{"text/event-stream": {
			Schema: r.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[api.ApprovalEvent](), true, "ApprovalEvent"),
		}},
	}}
	register(r, events, h.approvalEvents)
	register(r, op("approvals-get", "GET", "/approvals/{id}", "Describe an approval request"), h.getApproval)
	register(r, op("approvals-approve", "POST", "/approvals/{id}/approve", "Approve a request once, or its host from now on"), h.approve)
	register(r, op("approvals-deny", "POST", "/approvals/{id}/deny", "Deny a request, or withdraw an unused grant"), h.deny)
}

// callerOf returns the caller for package approval.
func callerOf(caller sandbox.Principal) approval.Caller {
	return approval.Caller{KeyID: caller.KeyID, Local: caller.Local, Person: caller.Person}
}

// ApprovalRef is the ID of an approval request in a path.
type ApprovalRef struct {
	ID string `path:"id" maxLength:"64" doc:"ID of the approval."`
}

type approvalBody struct{ Body api.Approval }

func approvalOut(a approval.Approval, err error) (*approvalBody, error) {
	if err != nil {
		return nil, err
	}
	return &approvalBody{approval.Show(a)}, nil
}

type listApprovalsInput struct {
	State   string `query:"state" doc:"States to show, separated by commas; pending ones if absent, all for \"all\"."`
	Sandbox string `query:"sandbox" maxLength:"64" doc:"Only requests of this sandbox, by ID or name."`
	Limit   int    `query:"limit" minimum:"0" maximum:"100" doc:"Maximum of rows; 100 if absent."`
}

type listApprovalsOutput struct{ Body api.ApprovalList }

func (h *approvalHandlers) listApprovals(ctx context.Context, caller sandbox.Principal, in *listApprovalsInput) (*listApprovalsOutput, error) {
	q := approval.Query{Limit: in.Limit}
	var err error
	if q.States, err = approvalStates(in.State); err != nil {
		return nil, err
	}
	if q.Sandbox, err = h.sandboxID(ctx, caller, in.Sandbox); err != nil {
		return nil, err
	}
	rows, err := h.approvals.List(ctx, callerOf(caller), q)
	if err != nil {
		return nil, err
	}
	out := &listApprovalsOutput{api.ApprovalList{Approvals: make([]api.Approval, 0, len(rows))}}
	for _, row := range rows {
		out.Body.Approvals = append(out.Body.Approvals, approval.Show(row))
	}
	return out, nil
}

func approvalStates(text string) ([]approval.State, error) {
	switch text {
	case "":
		return []approval.State{approval.Pending}, nil
	case "all":
		return nil, nil
	}
	var states []approval.State
	for name := range strings.SplitSeq(text, ",") {
		switch state := approval.State(name); state {
		case approval.Pending, approval.Approved, approval.Spent, approval.Denied, approval.Expired:
			states = append(states, state)
		default:
			return nil, fault.Newf(fault.Invalid, "invalid_state", "unknown state %q", name).
				WithHint("states are pending, approved, spent, denied and expired")
		}
	}
	return states, nil
}

// sandboxID returns the ID of the sandbox in a filter, "" for none.
func (h *approvalHandlers) sandboxID(ctx context.Context, caller sandbox.Principal, ref string) (string, error) {
	if ref == "" {
		return "", nil
	}
	sb, err := h.finder.Get(ctx, caller, ref)
	return sb.ID, err
}

func (h *approvalHandlers) getApproval(ctx context.Context, caller sandbox.Principal, in *ApprovalRef) (*approvalBody, error) {
	return approvalOut(h.approvals.Get(ctx, callerOf(caller), in.ID))
}

type approveInput struct {
	ApprovalRef
	Body api.Approve
}

func (h *approvalHandlers) approve(ctx context.Context, caller sandbox.Principal, in *approveInput) (*approvalBody, error) {
	return approvalOut(h.approvals.Approve(ctx, callerOf(caller), in.ID, in.Body.Reason, in.Body.Remember))
}

type denyInput struct {
	ApprovalRef
	Body api.Deny
}

func (h *approvalHandlers) deny(ctx context.Context, caller sandbox.Principal, in *denyInput) (*approvalBody, error) {
	return approvalOut(h.approvals.Deny(ctx, callerOf(caller), in.ID, in.Body.Reason))
}

type approvalEventsInput struct {
	Sandbox     string `query:"sandbox" maxLength:"64" doc:"Only requests of this sandbox, by ID or name."`
	LastEventID string `header:"Last-Event-ID" maxLength:"32" doc:"Continue after this event."`
}

func (h *approvalHandlers) approvalEvents(ctx context.Context, caller sandbox.Principal, in *approvalEventsInput) (*huma.StreamResponse, error) {
	q := approval.Query{}
	var err error
	if q.Sandbox, err = h.sandboxID(ctx, caller, in.Sandbox); err != nil {
		return nil, err
	}
	after := approval.FromNow
	if in.LastEventID != "" {
		if after, err = strconv.ParseInt(in.LastEventID, 10, 64); err != nil || after < 0 {
			return nil, fault.New(fault.Invalid, "invalid_event_id", "Last-Event-ID was not issued by this server")
		}
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		c.SetHeader("Content-Type", "text/event-stream")
		c.SetHeader("Cache-Control", "no-store")
		c.SetStatus(http.StatusOK)
		if err := h.streamApprovals(c, callerOf(caller), q, after); err != nil {
			logInternal(c.Context(), h.log, "approvals-events", err)
		}
	}}, nil
}
