package lifecycle

import (
	"context"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// Get finds a sandbox by ID, name or, for local callers, unique ID prefix.
func (s *Service) Get(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Sandbox, error) {
	r, err := s.resolve(ctx, caller, ref)
	return s.withLinkState(r).Shown(), err
}

// withLinkState sets a field that is not in the row: whether the sandbox has lost its network
// attachment.
func (s *Service) withLinkState(r sandbox.Row) sandbox.Row {
	if sb, ok := s.live.get(r.ID); ok {
		r.Unlinked = sb.Unlinked
	}
	return r
}

// resolve returns the row of the sandbox that a caller names, if the caller may see it.
func (s *Service) resolve(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Row, error) {
	if err := caller.Check(); err != nil {
		return sandbox.Row{}, err
	}
	if idPattern.MatchString(ref) {
		r, err := s.store.Get(ctx, ref)
		if err != nil {
			return sandbox.Row{}, err
		}
		if !caller.MaySee(r) {
			return sandbox.Row{}, sandbox.Unknown(ref)
		}
		auditlog.About(ctx, r.ID)
		return r, nil
	}
	if !namePattern.MatchString(ref) {
		return sandbox.Row{}, sandbox.Unknown(ref)
	}
	found, err := s.store.Find(ctx, ref, caller)
	if err != nil {
		return sandbox.Row{}, err
	}
	r, err := choose(found, ref, caller)
	if err == nil {
		auditlog.About(ctx, r.ID)
	}
	return r, err
}

// choose selects one of several rows, in the order of their rank. A local caller's own sandbox has
// precedence over a key's with the same name.
func choose(found []sandbox.Row, ref string, caller sandbox.Principal) (sandbox.Row, error) {
	ranks := make([][]sandbox.Row, 3)
	for _, r := range found {
		switch {
		case !caller.MaySee(r):
		case r.Name == ref && r.State != sandbox.Stopped:
			ranks[0] = append(ranks[0], r)
		case r.Name == ref:
			ranks[1] = append(ranks[1], r)
		case strings.HasPrefix(r.ID, ref) && caller.Local:
			ranks[2] = append(ranks[2], r)
		}
	}
	for _, rows := range ranks {
		switch len(rows) {
		case 0:
			continue
		case 1:
			return rows[0], nil
		}
		for _, r := range rows {
			if r.Name == ref && r.Owner == caller.KeyID {
				return r, nil
			}
		}
		return sandbox.Row{}, fault.Newf(fault.Conflict, "sandbox_ambiguous", "%q means more than one sandbox", ref).
			WithHint("use its full ID")
	}
	return sandbox.Row{}, sandbox.Unknown(ref)
}

// maxPage is the greatest number of rows of one page.
const maxPage = 100

// List returns a page of the caller's sandboxes; local callers see all.
func (s *Service) List(ctx context.Context, caller sandbox.Principal, f sandbox.Filter) (sandbox.Page, error) {
	if err := caller.Check(); err != nil {
		return sandbox.Page{}, err
	}
	if f.Limit < 0 || f.Limit > maxPage {
		return sandbox.Page{}, fault.Newf(fault.Invalid, "limit_invalid", "limit is %d, and must be from 1 to %d", f.Limit, maxPage)
	}
	if f.Limit == 0 {
		f.Limit = maxPage
	}
	if err := checkMetadata(f.Metadata); err != nil {
		return sandbox.Page{}, err
	}
	q := sandbox.Query{Filter: f, Owner: caller.KeyID, AllOwners: caller.Local}
	// One row more than the page holds shows whether there is another page.
	q.Limit++
	rows, err := s.store.List(ctx, q)
	if err != nil {
		return sandbox.Page{}, err
	}
	running, err := s.store.CountRunning(ctx, q)
	if err != nil {
		return sandbox.Page{}, err
	}
	page := sandbox.Page{Running: running, More: len(rows) > f.Limit}
	if page.More {
		rows = rows[:f.Limit]
	}
	page.Sandboxes = make([]sandbox.Sandbox, len(rows))
	for i, r := range rows {
		page.Sandboxes[i] = s.withLinkState(r).Shown()
	}
	return page, nil
}

// Logs returns the log of a sandbox, oldest line first.
func (s *Service) Logs(ctx context.Context, caller sandbox.Principal, ref string) ([]sandbox.LogEntry, error) {
	r, err := s.resolve(ctx, caller, ref)
	if err != nil {
		return nil, err
	}
	return s.store.Entries(ctx, r.ID)
}
