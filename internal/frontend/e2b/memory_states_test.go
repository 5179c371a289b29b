package e2b_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// origin returns the template that a reference names, or the template of the snapshot that it names.
func (m *memory) origin(caller sandbox.Principal, s string) (sandbox.Template, error) {
	ref, err := sandbox.ParseReference(s)
	if err != nil {
		return sandbox.Template{}, err
	}
	t, err := templates{}.Resolve(context.Background(), ref)
	if fault.KindOf(err) != fault.NotFound {
		return t, err
	}
	if i := m.snapshotOf(caller, ref.Name); i >= 0 {
		return sandbox.Template{ID: m.snapshots[i].TemplateID, Name: m.snapshots[i].Template}, nil
	}
	return t, err
}

// findForChange finds a sandbox for a call that saves or changes its state. If failState is
// set, it returns that error.
func (m *memory) findForChange(caller sandbox.Principal, ref string) (int, error) {
	i, err := m.find(caller, ref)
	if err == nil {
		err = m.failState
	}
	return i, err
}

func (m *memory) Pause(_ context.Context, caller sandbox.Principal, ref string, filesOnly bool) (sandbox.Sandbox, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.findForChange(caller, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if m.list[i].State == sandbox.Paused {
		return sandbox.Sandbox{}, fault.New(fault.Conflict, "sandbox_paused", "it is paused")
	}
	m.filesOnly = filesOnly
	m.list[i].State, m.list[i].PausedAt, m.list[i].FilesOnly = sandbox.Paused, time.Now(), filesOnly
	return m.list[i], nil
}

func (m *memory) Resume(_ context.Context, caller sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.between != nil {
		m.between()
	}
	i, err := m.find(caller, ref)
	if err != nil {
		return sandbox.Sandbox{}, false, err
	}
	b := &m.list[i]
	if b.State == sandbox.Running {
		return *b, false, nil
	}
	b.State, b.PausedAt, b.FilesOnly, b.EndAt = sandbox.Running, time.Time{}, false, time.Now().Add(d)
	return *b, true, nil
}

func (m *memory) ResumeFiles(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, bool, error) {
	m.reboots++
	return m.Resume(ctx, caller, ref, d)
}

func (m *memory) Fork(_ context.Context, caller sandbox.Principal, ref string, req sandbox.ForkRequest) ([]sandbox.Fork, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.findForChange(caller, ref)
	if err != nil {
		return nil, err
	}
	if m.list[i].State != sandbox.Running {
		return nil, fault.New(fault.Conflict, "sandbox_paused", "it is paused")
	}
	m.forks = req.Count
	var forks []sandbox.Fork
	for n := range req.Count {
		if m.failFork != nil && n%2 == 1 {
			forks = append(forks, sandbox.Fork{Err: m.failFork})
			continue
		}
		m.made++
		s := m.list[i]
		s.ID, s.AccessToken = fmt.Sprintf("i%019d", m.made), fmt.Sprintf("token%d", m.made)
		s.EndAt = time.Now().Add(req.Timeout)
		m.list = append(m.list, s)
		forks = append(forks, sandbox.Fork{Sandbox: s})
	}
	return forks, nil
}

func (m *memory) Snapshot(_ context.Context, caller sandbox.Principal, ref string, req sandbox.SnapshotRequest) (sandbox.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.findForChange(caller, ref)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	n := len(m.snapshots)
	s := sandbox.Snapshot{
		ID: fmt.Sprintf("s%019d", n), Name: req.Name, Owner: caller.KeyID, Sandbox: m.list[i].ID,
		TemplateID: m.list[i].TemplateID, Template: m.list[i].Template, FilesOnly: req.FilesOnly,
		CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 600_000_000+n, time.UTC),
	}
	m.snapshots = append(m.snapshots, s)
	return s, nil
}

func (m *memory) Snapshots(_ context.Context, caller sandbox.Principal, f sandbox.SnapshotFilter) (sandbox.SnapshotPage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return sandbox.SnapshotPage{}, m.fail
	}
	var page sandbox.SnapshotPage
	for _, s := range slices.Backward(m.snapshots) {
		if s.Owner != caller.KeyID || f.Sandbox != "" && s.Sandbox != f.Sandbox || f.Name != "" && s.Name != f.Name {
			continue
		}
		if f.AfterID != "" && !s.CreatedAt.Before(f.AfterTime) {
			continue
		}
		if len(page.Snapshots) == f.Limit {
			page.More = true
			break
		}
		page.Snapshots = append(page.Snapshots, s)
	}
	return page, nil
}

func (m *memory) snapshotOf(caller sandbox.Principal, ref string) int {
	for i, s := range slices.Backward(m.snapshots) {
		if s.Owner == caller.KeyID && (s.ID == ref || s.Name == ref) {
			return i
		}
	}
	return -1
}

func (m *memory) FindSnapshot(_ context.Context, caller sandbox.Principal, ref string) (sandbox.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.snapshotOf(caller, ref)
	if i < 0 {
		return sandbox.Snapshot{}, fault.New(fault.NotFound, "snapshot_not_found", "no such snapshot")
	}
	return m.snapshots[i], nil
}

func (m *memory) RemoveSnapshot(_ context.Context, caller sandbox.Principal, ref string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.snapshotOf(caller, ref)
	if i < 0 {
		return fault.New(fault.NotFound, "snapshot_not_found", "no such snapshot")
	}
	m.snapshots = slices.Delete(m.snapshots, i, i+1)
	return nil
}
