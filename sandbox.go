package crannog

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
)

// Sandbox is one sandbox. Its methods may be called concurrently.
type Sandbox struct {
	client *Client

	mu   sync.Mutex
	info api.Sandbox
}

// Create creates a sandbox and returns when it is ready.
func (c *Client) Create(ctx context.Context, opts ...CreateOption) (*Sandbox, error) {
	var req api.CreateSandbox
	for _, opt := range opts {
		opt(&req)
	}
	for name, value := range req.Env {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			// The JSON encoder would replace the invalid bytes.
			return nil, fromFault(fault.Newf(fault.Invalid, "not_utf8", "the variable %q is not UTF-8", name).
				WithHint("variables of a sandbox must be UTF-8; those of one command may have any bytes"))
		}
	}
	sb := &Sandbox{client: c}
	if err := c.call(ctx, http.MethodPost, "/sandboxes", req, &sb.info); err != nil {
		return nil, err
	}
	return sb, nil
}

// Get finds a sandbox by its ID or name; on a local server also by a unique prefix of its
// ID.
func (c *Client) Get(ctx context.Context, ref string) (*Sandbox, error) {
	sb := &Sandbox{client: c}
	if err := c.call(ctx, http.MethodGet, "/sandboxes/"+segment(ref), nil, &sb.info); err != nil {
		return nil, err
	}
	return sb, nil
}

// ListOptions select sandboxes for List. The zero value lists running sandboxes.
type ListOptions struct {
	States   []string          // such as "paused"; "all" shows every state
	Metadata map[string]string // all must match
}

// List describes sandboxes, newest first, without their tokens.
func (c *Client) List(ctx context.Context, o ListOptions) ([]api.Sandbox, error) {
	query := url.Values{}
	for i, s := range o.States {
		if i > 0 {
			s = query.Get("state") + "," + s
		}
		query.Set("state", s)
	}
	for k, v := range o.Metadata {
		query.Add("metadata", k+"="+v)
	}
	var all []api.Sandbox
	for {
		var page api.SandboxList
		if err := c.call(ctx, http.MethodGet, "/sandboxes?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Sandboxes...)
		if page.NextCursor == "" || page.NextCursor == query.Get("cursor") {
			return all, nil
		}
		query.Set("cursor", page.NextCursor)
	}
}

// ID returns the sandbox's ID.
func (s *Sandbox) ID() string { return s.Info().ID }

// Info returns the last known description of the sandbox.
func (s *Sandbox) Info() api.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

// Refresh requests the description from the server. Info returns the same description afterwards.
func (s *Sandbox) Refresh(ctx context.Context) (api.Sandbox, error) {
	return s.change(ctx, http.MethodGet, "", nil)
}

// Kill ends the sandbox and all of its processes.
func (s *Sandbox) Kill(ctx context.Context) error {
	return s.client.call(ctx, http.MethodDelete, s.path(""), nil, nil)
}

// SetTimeout sets the end of the sandbox to d from now. Zero ends it at once.
func (s *Sandbox) SetTimeout(ctx context.Context, d time.Duration) error {
	_, err := s.change(ctx, http.MethodPost, "/timeout", api.Duration{Seconds: d.Seconds()})
	return err
}

// Extend sets the end of the sandbox to at least d from now.
func (s *Sandbox) Extend(ctx context.Context, d time.Duration) error {
	_, err := s.change(ctx, http.MethodPost, "/extend", api.Duration{Seconds: d.Seconds()})
	return err
}

// change sends a request about the sandbox, and stores the description in its response for Info.
func (s *Sandbox) change(ctx context.Context, method, sub string, in any) (api.Sandbox, error) {
	var info api.Sandbox
	if err := s.client.call(ctx, method, s.path(sub), in, &info); err != nil {
		return api.Sandbox{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info = info
	return info, nil
}

// Metrics returns the resource use of the sandbox, oldest first.
func (s *Sandbox) Metrics(ctx context.Context) ([]api.Metric, error) {
	var out api.MetricList
	err := s.client.call(ctx, http.MethodGet, s.path("/metrics"), nil, &out)
	return out.Metrics, err
}

// Logs returns the events of the sandbox, oldest first.
func (s *Sandbox) Logs(ctx context.Context) ([]api.LogEntry, error) {
	var out api.LogList
	err := s.client.call(ctx, http.MethodGet, s.path("/logs"), nil, &out)
	return out.Logs, err
}

// Exec runs one command and returns its output up to the limit, and the limit that the command
// reached. Texts may have any bytes: if Encoding is empty, they are sent in base64 where necessary.
func (s *Sandbox) Exec(ctx context.Context, req api.Exec) (api.ExecResult, error) {
	var out api.ExecResult
	req = encodeTexts(req)
	err := s.client.call(ctx, http.MethodPost, s.path("/exec"), req, &out)
	return out, err
}

func (s *Sandbox) path(sub string) string { return "/sandboxes/" + segment(s.ID()) + sub }

// dataHeader returns the headers for the address and the token of a port inside.
func (s *Sandbox) dataHeader(port int) http.Header {
	info := s.Info()
	h := http.Header{}
	h.Set("E2b-Sandbox-Id", info.ID)
	h.Set("E2b-Sandbox-Port", strconv.Itoa(port))
	h.Set("X-Access-Token", info.AccessToken)
	return h
}

// segment escapes one element of a path. An empty or dotted element would change the route, so it
// is replaced by a name that cannot exist.
func segment(ref string) string {
	switch ref {
	case "", ".", "..":
		return "%20"
	}
	return url.PathEscape(ref)
}
