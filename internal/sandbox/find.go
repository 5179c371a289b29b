package sandbox

import (
	"context"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// Get finds a sandbox by ID, name or, for local callers, unique ID prefix.
func (s *Service) Get(ctx context.Context, who Principal, ref string) (Sandbox, error) {
	r, err := s.resolve(ctx, who, ref)
	return s.linkOf(r).shown(), err
}

// linkOf adds what no row says: whether the sandbox has lost its link.
func (s *Service) linkOf(r Record) Record {
	if sb, ok := s.known(r.ID); ok {
		r.Unlinked = sb.Unlinked
	}
	return r
}

// resolve finds the row that a caller means and may see.
func (s *Service) resolve(ctx context.Context, who Principal, ref string) (Record, error) {
	if err := who.check(); err != nil {
		return Record{}, err
	}
	if idPattern.MatchString(ref) {
		r, err := s.store.Get(ctx, ref)
		if err != nil {
			return Record{}, err
		}
		if !who.may(r) {
			return Record{}, Unknown(ref)
		}
		about(ctx, r.ID)
		return r, nil
	}
	if !namePattern.MatchString(ref) {
		return Record{}, Unknown(ref)
	}
	found, err := s.store.Find(ctx, ref, who)
	if err != nil {
		return Record{}, err
	}
	r, err := choose(found, ref, who)
	if err == nil {
		about(ctx, r.ID)
	}
	return r, err
}

// choose picks from rows in the order of their rank. A local caller's own
// sandbox goes before a key's of the same name.
func choose(found []Record, ref string, who Principal) (Record, error) {
	ranks := make([][]Record, 3)
	for _, r := range found {
		switch {
		case !who.may(r):
		case r.Name == ref && r.State != Stopped:
			ranks[0] = append(ranks[0], r)
		case r.Name == ref:
			ranks[1] = append(ranks[1], r)
		case strings.HasPrefix(r.ID, ref) && who.Local:
			ranks[2] = append(ranks[2], r)
		}
	}
	for _, same := range ranks {
		switch len(same) {
		case 0:
			continue
		case 1:
			return same[0], nil
		}
		for _, r := range same {
			if r.Name == ref && r.Owner == who.KeyID {
				return r, nil
			}
		}
		return Record{}, fault.Newf(fault.Conflict, "sandbox_ambiguous", "%q means more than one sandbox", ref).
			WithHint("name it by its whole ID")
	}
	return Record{}, Unknown(ref)
}

// maxPage is the most rows of one page.
const maxPage = 100

// List returns a page of the caller's sandboxes; local callers see all.
func (s *Service) List(ctx context.Context, who Principal, f Filter) (Page, error) {
	if err := who.check(); err != nil {
		return Page{}, err
	}
	if f.Limit < 0 || f.Limit > maxPage {
		return Page{}, fault.Newf(fault.Invalid, "limit_invalid", "limit is %d, and must be from 1 to %d", f.Limit, maxPage)
	}
	if f.Limit == 0 {
		f.Limit = maxPage
	}
	if err := checkMetadata(f.Metadata); err != nil {
		return Page{}, err
	}
	q := Query{Filter: f, Owner: who.KeyID, AllOwners: who.Local}
	// One row more than the page holds shows whether there is another page.
	q.Limit++
	rows, err := s.store.List(ctx, q)
	if err != nil {
		return Page{}, err
	}
	running, err := s.store.CountRunning(ctx, q)
	if err != nil {
		return Page{}, err
	}
	page := Page{Running: running, More: len(rows) > f.Limit}
	if page.More {
		rows = rows[:f.Limit]
	}
	page.Sandboxes = make([]Sandbox, len(rows))
	for i, r := range rows {
		page.Sandboxes[i] = s.linkOf(r).shown()
	}
	return page, nil
}

// Logs returns what happened to a sandbox, oldest first.
func (s *Service) Logs(ctx context.Context, who Principal, ref string) ([]LogEntry, error) {
	r, err := s.resolve(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	return s.store.Entries(ctx, r.ID)
}
