package crannog

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/crannog/crannog/api"
)

// ApprovalOptions select approvals.
type ApprovalOptions struct {
	// States are pending, approved, spent, denied, expired or all. Without any, pending is used.
	States []string
	// Sandbox selects one sandbox, by ID or name.
	Sandbox string
}

// Approvals lists approval requests, the newest first.
func (c *Client) Approvals(ctx context.Context, o ApprovalOptions) ([]api.Approval, error) {
	query := url.Values{}
	if len(o.States) > 0 {
		query.Set("state", strings.Join(o.States, ","))
	}
	if o.Sandbox != "" {
		query.Set("sandbox", o.Sandbox)
	}
	var out api.ApprovalList
	err := c.call(ctx, http.MethodGet, "/approvals?"+query.Encode(), nil, &out)
	return out.Approvals, err
}

// Approval describes one approval request.
func (c *Client) Approval(ctx context.Context, id string) (api.Approval, error) {
	var out api.Approval
	err := c.call(ctx, http.MethodGet, "/approvals/"+segment(id), nil, &out)
	return out, err
}

// Approve approves a request once. With remember its host is also added to the
// sandbox's policy.
func (c *Client) Approve(ctx context.Context, id, reason string, remember bool) (api.Approval, error) {
	var out api.Approval
	err := c.call(ctx, http.MethodPost, "/approvals/"+segment(id)+"/approve", api.Approve{Reason: reason, Remember: remember}, &out)
	return out, err
}

// Deny denies a request. The program inside gets the reason.
func (c *Client) Deny(ctx context.Context, id, reason string) (api.Approval, error) {
	var out api.Approval
	err := c.call(ctx, http.MethodPost, "/approvals/"+segment(id)+"/deny", api.Deny{Reason: reason}, &out)
	return out, err
}

// maxApprovalEvent bounds one event, so that a server cannot fill the client's memory.
const maxApprovalEvent = 1 << 20

// WatchApprovals calls each for every pending request and then for every change, until
// ctx ends (nil), the stream fails, or each returns an error. sandbox selects one
// sandbox; "" selects all. If last is not "", the stream continues after that event.
// WatchApprovals returns the ID of the last event, for the next call.
func (c *Client) WatchApprovals(ctx context.Context, sandbox, last string, each func(api.ApprovalEvent) error) (string, error) {
	query := url.Values{}
	if sandbox != "" {
		query.Set("sandbox", sandbox)
	}
	resp, err := c.stream(ctx, "/approvals/events?"+query.Encode(), last)
	if err != nil {
		if ctx.Err() != nil {
			return last, nil
		}
		return last, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxApprovalEvent)
	id := last
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			id = value
		case "data":
			var e api.ApprovalEvent
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				return last, unreachableError(fmt.Errorf("the event is not valid JSON: %w", err))
			}
			if err := each(e); err != nil {
				return last, err
			}
			last = id
		}
	}
	if ctx.Err() != nil {
		return last, nil
	}
	return last, unreachableError(errors.Join(lines.Err(), io.ErrUnexpectedEOF))
}

// stream opens a stream of server-sent events, after the event last if that is not "".
func (c *Client) stream(ctx context.Context, path, last string) (*http.Response, error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	if last != "" {
		header.Set("Last-Event-ID", last)
	}
	return c.open(ctx, path, header)
}
