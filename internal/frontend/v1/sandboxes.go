package v1

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/census"
	"github.com/crannog/crannog/internal/guest/utf8text"
	"github.com/crannog/crannog/internal/sandbox"
)

// Finder finds the sandboxes of a caller.
type Finder interface {
	// Get finds a sandbox by ID, by name or, for local callers, by a unique prefix of its ID. A
	// sandbox of another key is NotFound.
	Get(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Sandbox, error)
	List(ctx context.Context, caller sandbox.Principal, f sandbox.Filter) (sandbox.Page, error)
}

// Lifetimes starts and ends sandboxes, and changes when they end.
type Lifetimes interface {
	Create(ctx context.Context, caller sandbox.Principal, req sandbox.CreateRequest) (sandbox.Sandbox, error)
	// Remove ends a sandbox and keeps its row. For a paused or ended sandbox, it removes the row
	// too.
	Remove(ctx context.Context, caller sandbox.Principal, id string) error
	// SetTimeout makes a sandbox end after d from now. Zero ends it now.
	SetTimeout(ctx context.Context, caller sandbox.Principal, id string, d time.Duration) (sandbox.Sandbox, error)
	// Extend makes a sandbox end after d from now, unless its present end is later.
	Extend(ctx context.Context, caller sandbox.Principal, id string, d time.Duration) (sandbox.Sandbox, error)
}

// Monitor returns measurements, events and processes of a sandbox.
type Monitor interface {
	Metrics(ctx context.Context, caller sandbox.Principal, id string, from, to time.Time) ([]sandbox.Metric, error)
	Logs(ctx context.Context, caller sandbox.Principal, id string) ([]sandbox.LogEntry, error)
	Census(ctx context.Context, caller sandbox.Principal, ref string) (census.Census, error)
}

// sandboxHandlers serves sandboxes, from their creation to their removal.
type sandboxHandlers struct {
	finder    Finder
	lifetimes Lifetimes
	monitor   Monitor
	heads     *treeHeads
}

func (h *sandboxHandlers) register(r *registry) {
	register(r, created(op("sandboxes-create", "POST", "/sandboxes", "Create a sandbox and wait until it is ready")), h.create)
	register(r, op("sandboxes-list", "GET", "/sandboxes", "List sandboxes"), h.list)
	register(r, op("sandboxes-get", "GET", "/sandboxes/{id}", "Describe a sandbox"), h.get)
	register(r, empty(op("sandboxes-remove", "DELETE", "/sandboxes/{id}", "End a sandbox, or remove an ended one")), h.remove)
	register(r, op("sandboxes-timeout", "POST", "/sandboxes/{id}/timeout", "Set the time after which a sandbox ends"), h.setTimeout)
	register(r, op("sandboxes-extend", "POST", "/sandboxes/{id}/extend", "Extend the time after which a sandbox ends"), h.extend)
	register(r, op("sandboxes-metrics", "GET", "/sandboxes/{id}/metrics", "Get the resource use of a sandbox over time"), h.metrics)
	register(r, op("sandboxes-logs", "GET", "/sandboxes/{id}/logs", "List the events of a sandbox"), h.logs)
	register(r, op("sandboxes-processes", "GET", "/sandboxes/{id}/processes", "List the processes of a sandbox"), h.processes)
}

// Ref is a sandbox in a path: ID, name or, for local callers, a unique prefix of the ID.
type Ref struct {
	ID string `path:"id" maxLength:"64" doc:"ID or name."`
}

type sandboxBody struct{ Body api.Sandbox }

type createInput struct {
	Body    api.CreateSandbox
	RawBody []byte
}

func (h *sandboxHandlers) create(ctx context.Context, caller sandbox.Principal, in *createInput) (*sandboxBody, error) {
	if which := utf8text.FindInvalid(in.RawBody); which != "" {
		return nil, fault.Newf(fault.Invalid, CodeNotUTF8, "%s is not UTF-8", which).
			WithHint("variables of a sandbox must be UTF-8; those of one command may have any bytes")
	}
	req, err := fromCreate(in.Body)
	if err != nil {
		return nil, err
	}
	sb, err := h.lifetimes.Create(ctx, caller, req)
	if err != nil {
		return nil, err
	}
	return &sandboxBody{withTokens(caller, toSandbox(sb), sb)}, nil
}

func (h *sandboxHandlers) get(ctx context.Context, caller sandbox.Principal, in *Ref) (*sandboxBody, error) {
	sb, err := h.finder.Get(ctx, caller, in.ID)
	if err != nil {
		return nil, err
	}
	return &sandboxBody{withTokens(caller, toSandbox(sb), sb)}, nil
}

func (h *sandboxHandlers) remove(ctx context.Context, caller sandbox.Principal, in *Ref) (*removedOutput, error) {
	sb, err := h.finder.Get(ctx, caller, in.ID)
	if err != nil {
		return nil, err
	}
	if err := h.lifetimes.Remove(ctx, caller, sb.ID); err != nil {
		return nil, err
	}
	return &removedOutput{h.heads.covering(ctx)}, nil
}

type durationInput struct {
	Ref
	Body api.Duration
}

func (h *sandboxHandlers) setTimeout(ctx context.Context, caller sandbox.Principal, in *durationInput) (*sandboxBody, error) {
	return h.changeEnd(ctx, caller, in, h.lifetimes.SetTimeout)
}

func (h *sandboxHandlers) extend(ctx context.Context, caller sandbox.Principal, in *durationInput) (*sandboxBody, error) {
	return h.changeEnd(ctx, caller, in, h.lifetimes.Extend)
}

func (h *sandboxHandlers) changeEnd(ctx context.Context, caller sandbox.Principal, in *durationInput,
	change func(context.Context, sandbox.Principal, string, time.Duration) (sandbox.Sandbox, error),
) (*sandboxBody, error) {
	d, err := duration("seconds", in.Body.Seconds)
	if err != nil {
		return nil, err
	}
	sb, err := h.finder.Get(ctx, caller, in.ID)
	if err != nil {
		return nil, err
	}
	if sb, err = change(ctx, caller, sb.ID, d); err != nil {
		return nil, err
	}
	return &sandboxBody{withTokens(caller, toSandbox(sb), sb)}, nil
}

type listInput struct {
	State    string   `query:"state" doc:"States to show, separated by commas; running ones if absent, all for \"all\"."`
	Metadata []string `query:"metadata,explode" maxItems:"32" doc:"name=value; all must match. May be repeated."`
	Limit    int      `query:"limit" minimum:"0" maximum:"100" doc:"Rows on a page; 100 if absent."`
	Cursor   string   `query:"cursor" maxLength:"512" doc:"next_cursor of the page before."`
}

type listOutput struct{ Body api.SandboxList }

func (h *sandboxHandlers) list(ctx context.Context, caller sandbox.Principal, in *listInput) (*listOutput, error) {
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	page, err := h.finder.List(ctx, caller, filter)
	if err != nil {
		return nil, err
	}
	out := api.SandboxList{Sandboxes: make([]api.Sandbox, 0, len(page.Sandboxes)), Running: page.Running}
	for _, sb := range page.Sandboxes {
		out.Sandboxes = append(out.Sandboxes, toSandbox(sb))
	}
	if n := len(page.Sandboxes); page.More && n > 0 {
		out.NextCursor = cursorOf(page.Sandboxes[n-1].StartedAt, page.Sandboxes[n-1].ID)
	}
	return &listOutput{out}, nil
}

func (in *listInput) filter() (sandbox.Filter, error) {
	f := sandbox.Filter{Limit: in.Limit}
	states, err := parseStates(in.State)
	if err != nil {
		return f, err
	}
	f.States = states
	for _, pair := range in.Metadata {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return f, fault.New(fault.Invalid, "invalid_metadata", "metadata must be name=value")
		}
		if f.Metadata == nil {
			f.Metadata = map[string]string{}
		}
		f.Metadata[name] = value
	}
	if in.Cursor != "" {
		f.AfterTime, f.AfterID, err = readCursor(in.Cursor)
	}
	return f, err
}

func parseStates(text string) ([]sandbox.State, error) {
	switch text {
	case "":
		return []sandbox.State{sandbox.Running}, nil
	case "all":
		return nil, nil
	}
	var states []sandbox.State
	for name := range strings.SplitSeq(text, ",") {
		switch state := sandbox.State(name); state {
		case sandbox.Creating, sandbox.Running, sandbox.Pausing, sandbox.Paused, sandbox.Resuming, sandbox.Stopping, sandbox.Stopped:
			states = append(states, state)
		default:
			return nil, fault.Newf(fault.Invalid, "invalid_state", "there is no state %q", name).
				WithHint("states are creating, running, pausing, paused, resuming, stopping and stopped")
		}
	}
	return states, nil
}

// cursor is the last row of a page. Its base64 form is opaque to clients.
type cursor struct {
	Time time.Time `json:"t"`
	ID   string    `json:"i"`
}

func cursorOf(at time.Time, id string) string {
	// A struct of a time and a string always marshals.
	b, _ := json.Marshal(cursor{at, id})
	return base64.RawURLEncoding.EncodeToString(b)
}

func readCursor(text string) (time.Time, string, error) {
	var c cursor
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil || c.ID == "" || c.Time.IsZero() {
		return time.Time{}, "", fault.Wrap(err, fault.Invalid, "invalid_cursor", "the cursor was not issued by this server")
	}
	return c.Time, c.ID, nil
}

type metricsInput struct {
	Ref
	From time.Time `query:"from"`
	To   time.Time `query:"to"`
}

type metricsOutput struct{ Body api.MetricList }

func (h *sandboxHandlers) metrics(ctx context.Context, caller sandbox.Principal, in *metricsInput) (*metricsOutput, error) {
	sb, err := h.finder.Get(ctx, caller, in.ID)
	if err != nil {
		return nil, err
	}
	samples, err := h.monitor.Metrics(ctx, caller, sb.ID, in.From, in.To)
	if err != nil {
		return nil, err
	}
	out := &metricsOutput{api.MetricList{Metrics: make([]api.Metric, 0, len(samples))}}
	for _, m := range samples {
		out.Body.Metrics = append(out.Body.Metrics, toMetric(m))
	}
	return out, nil
}

type logsOutput struct{ Body api.LogList }

func (h *sandboxHandlers) logs(ctx context.Context, caller sandbox.Principal, in *Ref) (*logsOutput, error) {
	sb, err := h.finder.Get(ctx, caller, in.ID)
	if err != nil {
		return nil, err
	}
	entries, err := h.monitor.Logs(ctx, caller, sb.ID)
	if err != nil {
		return nil, err
	}
	out := &logsOutput{api.LogList{Logs: make([]api.LogEntry, 0, len(entries))}}
	for _, e := range entries {
		out.Body.Logs = append(out.Body.Logs, toLog(e))
	}
	return out, nil
}
