package crannog

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/crannog/crannog/api"
)

// FlowOptions select flows. The zero value selects all so far.
type FlowOptions struct {
	Denied bool   // only denials
	After  uint64 // only flows after the one with this number
	Follow bool   // continue until the sandbox ends
	Newest bool   // only the last one so far
}

func (o FlowOptions) query() string {
	q := url.Values{}
	if o.Denied {
		q.Set("denied", "true")
	}
	if o.After > 0 {
		q.Set("after", strconv.FormatUint(o.After, 10))
	}
	if o.Follow {
		q.Set("follow", "true")
	}
	if o.Newest {
		q.Set("newest", "true")
	}
	return q.Encode()
}

// Flows calls yield for each flow of the sandbox, including denied ones, in order. If
// yield returns an error, Flows stops and returns it.
func (s *Sandbox) Flows(ctx context.Context, o FlowOptions, yield func(api.FlowRecord) error) error {
	path := "/sandboxes/" + segment(s.ID()) + "/network/log?" + o.query()
	if o.Follow {
		return s.followFlows(ctx, path, yield)
	}
	// The server bounds one answer, so the next request continues after it.
	for {
		var list api.FlowList
		if err := s.client.call(ctx, http.MethodGet, path, nil, &list); err != nil {
			return err
		}
		for _, r := range list.Records {
			if err := yield(r); err != nil {
				return err
			}
			o.After = r.Seq
		}
		if len(list.Records) == 0 || o.Newest {
			return nil
		}
		path = "/sandboxes/" + segment(s.ID()) + "/network/log?" + o.query()
	}
}

// followFlows calls yield for each flow until the sandbox ends.
func (s *Sandbox) followFlows(ctx context.Context, path string, yield func(api.FlowRecord) error) error {
	resp, err := s.client.open(ctx, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := json.NewDecoder(bufio.NewReader(resp.Body))
	for {
		var r api.FlowRecord
		switch err := in.Decode(&r); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return unreachableError(err)
		}
		if err := yield(r); err != nil {
			return err
		}
	}
}

// Asked returns the names that programs in a sandbox without a network tried to resolve.
func (s *Sandbox) Asked(ctx context.Context) ([]string, error) {
	return s.AskedWithin(ctx, 0)
}

// AskedWithin is Asked for the given time before now. Zero means the whole life of the sandbox.
func (s *Sandbox) AskedWithin(ctx context.Context, last time.Duration) ([]string, error) {
	q := url.Values{"denied": {"true"}}
	if last > 0 {
		q.Set("asked_within_seconds", strconv.FormatFloat(last.Seconds(), 'f', -1, 64))
	}
	var list api.FlowList
	err := s.client.call(ctx, http.MethodGet, "/sandboxes/"+segment(s.ID())+"/network/log?"+q.Encode(), nil, &list)
	return list.Asked, err
}

// SetAccess replaces the network access of a running sandbox. Connections that are no
// longer allowed are closed.
func (s *Sandbox) SetAccess(ctx context.Context, access api.Access) error {
	var info api.Sandbox
	if err := s.client.call(ctx, http.MethodPut, "/sandboxes/"+segment(s.ID())+"/access", access, &info); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info = info
	return nil
}

// AskAccess requests approval for access to a host, and waits for the decision for the time in the
// request. Repeating the call continues the wait.
func (s *Sandbox) AskAccess(ctx context.Context, ask api.AskAccess) (api.AskedAccess, error) {
	var out api.AskedAccess
	err := s.client.call(ctx, http.MethodPost, "/sandboxes/"+segment(s.ID())+"/access/ask", ask, &out)
	return out, err
}

// Policy returns the effective policy of the sandbox.
func (s *Sandbox) Policy(ctx context.Context) (api.Policy, error) {
	var out api.Policy
	err := s.client.call(ctx, http.MethodGet, "/sandboxes/"+segment(s.ID())+"/policy", nil, &out)
	return out, err
}
