package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/sandbox"
)

// List returns the rows that a query selects.
func (s *Store) List(ctx context.Context, q sandbox.Query) ([]sandbox.Row, error) {
	where, args := conditions(q, true)
	order := "DESC"
	if q.Ascending {
		order = "ASC"
	}
	query := `SELECT ` + columns + ` FROM sandboxes` + where + ` ORDER BY started_at ` + order + `, id ` + order
	if q.Limit > 0 || q.Skip > 0 {
		limit := q.Limit
		if limit == 0 {
			limit = -1 // SQLite's value for no limit
		}
		query += ` LIMIT ? OFFSET ?`
		args = append(args, limit, q.Skip)
	}
	return s.queryRows(ctx, query, args...)
}

// CountRunning counts the running rows that a query selects on all pages.
func (s *Store) CountRunning(ctx context.Context, q sandbox.Query) (int, error) {
	q.States = []sandbox.State{sandbox.Running}
	where, args := conditions(q, false)
	var n int
	if err := s.db.QueryRowContext(ctx, `SELECT count(*) FROM sandboxes`+where, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count sandboxes: %w", classify(err))
	}
	return n, nil
}

// CountStates counts all rows by state.
func (s *Store) CountStates(ctx context.Context) (map[sandbox.State]int, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT state, count(*) FROM sandboxes GROUP BY state`)
	if err != nil {
		return nil, fmt.Errorf("count sandboxes: %w", classify(err))
	}
	defer rows.Close()
	counts := map[sandbox.State]int{}
	for rows.Next() {
		var state sandbox.State
		var n int
		if err := rows.Scan(&state, &n); err != nil {
			return nil, fmt.Errorf("count sandboxes: %w", classify(err))
		}
		counts[state] = n
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("count sandboxes: %w", classify(err))
	}
	return counts, nil
}

// Find returns the rows that a reference may mean, the best match first.
func (s *Store) Find(ctx context.Context, ref string, caller sandbox.Principal) ([]sandbox.Row, error) {
	const selectRows = `SELECT ` + columns + ` FROM sandboxes WHERE `
	ownerTerm, args := "", []any{ref}
	if !caller.Local {
		ownerTerm, args = ` AND owner = ?`, append(args, caller.KeyID)
	}
	live, err := s.queryRows(ctx, selectRows+`name = ? AND state <> 'stopped'`+ownerTerm+` LIMIT 2`, args...)
	if err != nil {
		return nil, err
	}
	stopped, err := s.queryRows(ctx, selectRows+`name = ? AND state = 'stopped'`+ownerTerm+` ORDER BY started_at DESC LIMIT 1`, args...)
	if err != nil {
		return nil, err
	}
	found := slices.Concat(live, stopped)
	if !caller.Local {
		return found, nil
	}
	// IDs are lower-case ASCII, so all with the prefix ref sort before ref followed by the highest
	// character.
	prefixed, err := s.queryRows(ctx, selectRows+`id >= ? AND id < ? AND state <> 'waiting' LIMIT 2`, ref, ref+"\x7f")
	return append(found, prefixed...), err
}

func (s *Store) queryRows(ctx context.Context, query string, args ...any) ([]sandbox.Row, error) {
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", classify(err))
	}
	defer rows.Close()
	var out []sandbox.Row
	for rows.Next() {
		r, err := decode(rows)
		if err != nil {
			return nil, fmt.Errorf("list sandboxes: %w", classify(err))
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", classify(err))
	}
	return out, nil
}

// conditions returns the WHERE clause of a query and its parameters. If paged is false, it matches
// the rows of all pages.
func conditions(q sandbox.Query, paged bool) (string, []any) {
	var terms []string
	var args []any
	add := func(term string, values ...any) {
		terms, args = append(terms, term), append(args, values...)
	}
	if !q.AllOwners {
		add(`owner = ?`, q.Owner)
	}
	if len(q.States) > 0 {
		states := make([]any, len(q.States))
		for i, state := range q.States {
			states[i] = string(state)
		}
		add(`state IN (`+placeholders(len(states))+`)`, states...)
	} else {
		add(`state <> 'waiting'`) // warm sandboxes belong to no caller
	}
	for k, v := range q.Metadata {
		add(`EXISTS (SELECT 1 FROM json_each(metadata) m WHERE m.key = ? AND m.value = ?)`, k, v)
	}
	if q.TemplateID != "" {
		add(`template_id = ?`, q.TemplateID)
	}
	if !q.StartedAfter.IsZero() {
		add(`started_at >= ?`, nanos(q.StartedAfter))
	}
	if !q.StoppedBefore.IsZero() {
		add(`state = 'stopped' AND stopped_at < ?`, nanos(q.StoppedBefore))
	}
	if q.Ephemeral {
		add(`ephemeral`)
	}
	if paged && q.AfterID != "" {
		add(`(started_at, id) `+map[bool]string{true: ">", false: "<"}[q.Ascending]+` (?, ?)`, nanos(q.AfterTime), q.AfterID)
	}
	if len(terms) == 0 {
		return "", nil
	}
	return ` WHERE ` + strings.Join(terms, ` AND `), args
}
