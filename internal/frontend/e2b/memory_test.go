package e2b_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/key"
)

const (
	goodKey    = "e2b_0000000000000000000000000000000000000001"
	otherKey   = "e2b_0000000000000000000000000000000000000002"
	templateID = "aaaaaaaaaaaaaaaaaaaa"
)

// keys knows the API keys of two callers.
type keys struct{}

func (keys) Verify(_ context.Context, secret string) (key.Key, error) {
	switch secret {
	case goodKey:
		return key.Key{ID: "k1"}, nil
	case otherKey:
		return key.Key{ID: "k2"}, nil
	}
	return key.Key{}, fault.New(fault.Unauthenticated, "key_invalid", "the API key is missing or wrong")
}

// templates has one template.
type templates struct{}

func (templates) Resolve(_ context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	if ref.Name != "base" && ref.Name != templateID {
		return sandbox.Template{}, sandbox.TemplateUnknown(ref)
	}
	if ref.Tag != sandbox.DefaultTag {
		return sandbox.Template{}, sandbox.TagUnknown(ref)
	}
	return sandbox.Template{ID: templateID, Name: "base"}, nil
}

// memory provides everything that the handler needs, without an engine.
type memory struct {
	mu      sync.Mutex
	list    []sandbox.Sandbox
	made    int
	last    sandbox.CreateRequest
	samples []sandbox.Metric
	entries []sandbox.LogEntry
	fail    error // returned by every call, unless nil
	// above are the operator's policy layers, which apply before those of callers.
	above []policy.Layer

	snapshots []sandbox.Snapshot
	filesOnly bool   // argument of the latest Pause
	reboots   int    // calls of ResumeFiles
	forks     int    // copies that the latest fork made
	between   func() // called by Resume before it finds the sandbox
	failFork  error  // error of each second copy
	failState error  // returned by Pause, Fork and Snapshot
}

func (m *memory) Create(_ context.Context, caller sandbox.Principal, req sandbox.CreateRequest) (sandbox.Sandbox, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return sandbox.Sandbox{}, m.fail
	}
	t, err := m.origin(caller, req.Template)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	m.made++
	m.last = req
	s := sandbox.Sandbox{
		ID: fmt.Sprintf("i%019d", m.made), TemplateID: t.ID, Template: t.Name, Owner: caller.KeyID,
		State: sandbox.Running, StartedAt: time.Now(), EndAt: time.Now().Add(req.Timeout),
		Metadata: req.Metadata, Env: req.Env, Limits: req.Limits,
		AccessToken: fmt.Sprintf("token%d", m.made), MaskRequestHost: req.MaskRequestHost, Access: req.Access,
		OnEnd: req.OnEnd,
	}
	s.Access.Values = nil
	if req.PrivatePorts {
		s.TrafficToken = "traffic"
	}
	m.list = append(m.list, s)
	return s, nil
}

func (m *memory) find(caller sandbox.Principal, id string) (int, error) {
	if m.fail != nil {
		return 0, m.fail
	}
	for i, s := range m.list {
		if (s.ID == id || (s.Name == id && s.Name != "")) && s.Owner == caller.KeyID {
			return i, nil
		}
	}
	return 0, fault.New(fault.NotFound, "sandbox_not_found", "no such sandbox")
}

func (m *memory) Get(_ context.Context, caller sandbox.Principal, ref string) (sandbox.Sandbox, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.find(caller, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return m.list[i], nil
}

func (m *memory) List(_ context.Context, caller sandbox.Principal, f sandbox.Filter) (sandbox.Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return sandbox.Page{}, m.fail
	}
	order := func(a, b *sandbox.Sandbox) int {
		c := cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
		if f.Ascending {
			return c
		}
		return -c
	}
	after := &sandbox.Sandbox{ID: f.AfterID, StartedAt: f.AfterTime}
	sorted := make([]*sandbox.Sandbox, 0, len(m.list))
	for i := range m.list {
		sorted = append(sorted, &m.list[i])
	}
	slices.SortFunc(sorted, order)
	var page sandbox.Page
	for _, s := range sorted {
		if s.Owner != caller.KeyID {
			continue
		}
		if s.State == sandbox.Running {
			page.Running++
		}
		if !slices.Contains(f.States, s.State) {
			continue
		}
		if f.AfterID != "" && order(s, after) <= 0 || s.StartedAt.Before(f.StartedAfter) ||
			f.TemplateID != "" && s.TemplateID != f.TemplateID || !hasMetadata(s.Metadata, f.Metadata) {
			continue
		}
		if len(page.Sandboxes) == f.Limit {
			page.More = true
			continue
		}
		page.Sandboxes = append(page.Sandboxes, *s)
	}
	return page, nil
}

func hasMetadata(have, want map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}

func (m *memory) Remove(_ context.Context, caller sandbox.Principal, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.find(caller, id)
	if err != nil {
		return err
	}
	m.list = slices.Delete(m.list, i, i+1)
	return nil
}

func (m *memory) SetTimeout(_ context.Context, caller sandbox.Principal, id string, d time.Duration) (sandbox.Sandbox, error) {
	return m.end(caller, id, d, false)
}

func (m *memory) Extend(_ context.Context, caller sandbox.Principal, id string, d time.Duration) (sandbox.Sandbox, error) {
	return m.end(caller, id, d, true)
}

func (m *memory) end(caller sandbox.Principal, id string, d time.Duration, onlyLater bool) (sandbox.Sandbox, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.find(caller, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if m.list[i].State != sandbox.Running {
		return sandbox.Sandbox{}, fault.New(fault.NotFound, "sandbox_not_running", "it does not run")
	}
	if end := time.Now().Add(d); !onlyLater || end.After(m.list[i].EndAt) {
		m.list[i].EndAt = end
	}
	return m.list[i], nil
}

func (m *memory) SetAccess(_ context.Context, caller sandbox.Principal, ref string, change func(sandbox.Access) (sandbox.Access, error)) (sandbox.Sandbox, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.find(caller, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	next, err := change(m.list[i].Access)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	m.last.Access = next
	next.Values = nil
	m.list[i].Access = next
	return m.list[i], nil
}

func (m *memory) Policy(_ context.Context, caller sandbox.Principal, ref string) (*policy.Policy, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.find(caller, ref)
	if err != nil {
		return nil, err
	}
	layers := slices.Clone(m.above)
	for _, d := range m.list[i].Access.Documents {
		layers = append(layers, policy.Layer{Kind: policy.LayerTask, Document: d})
	}
	p, _, err := policy.Compile(layers...)
	return p, err
}

func (m *memory) Metrics(_ context.Context, caller sandbox.Principal, id string, from, to time.Time) ([]sandbox.Metric, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.find(caller, id); err != nil {
		return nil, err
	}
	var found []sandbox.Metric
	for _, s := range m.samples {
		if !s.At.Before(from) && (to.IsZero() || !s.At.After(to)) {
			found = append(found, s)
		}
	}
	return found, nil
}

func (m *memory) Logs(_ context.Context, caller sandbox.Principal, id string) ([]sandbox.LogEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.find(caller, id); err != nil {
		return nil, err
	}
	return m.entries, nil
}

// fill adds running sandboxes, a millisecond apart.
func (m *memory) fill(n int, owner string) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC)
	for i := range n {
		m.made++
		m.list = append(m.list, sandbox.Sandbox{
			ID: fmt.Sprintf("i%019d", m.made), TemplateID: templateID, Template: "base", Owner: owner,
			State: sandbox.Running, StartedAt: start.Add(time.Duration(i) * time.Millisecond),
			EndAt: start.Add(time.Hour), AccessToken: "token",
			Limits: sandbox.Limits{Limits: engine.DefaultLimits},
		})
	}
}
