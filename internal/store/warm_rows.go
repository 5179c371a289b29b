package store

import (
	"context"
	"fmt"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Acquire assigns a warm sandbox to a caller. Limit and name are checked in the statement that
// changes the row, as in Insert.
func (s *Store) Acquire(ctx context.Context, r sandbox.Row, max int) (bool, error) {
	values, err := encode(r)
	if err != nil {
		return false, fmt.Errorf("acquire sandbox %s: %w", r.ID, err)
	}
	query := `UPDATE sandboxes SET (` + columns + `) = (` + placeholders(len(values)) + `)
		WHERE id = ? AND state = 'waiting' AND ` + countLive + ` < ?`
	res, err := s.exec(ctx, query, append(values, r.ID, max)...)
	if isUnique(err) {
		return false, nameTaken(r.Name)
	}
	if err != nil {
		return false, fmt.Errorf("acquire sandbox %s: %w", r.ID, classify(err))
	}
	n, err := res.RowsAffected()
	if err != nil || n > 0 {
		return n > 0, err
	}
	// No row was changed: the limit is reached, or the sandbox is no longer warm.
	current, err := s.Get(ctx, r.ID)
	if err == nil && current.State == sandbox.Waiting {
		return false, tooMany(max)
	}
	if fault.KindOf(err) == fault.NotFound {
		err = nil
	}
	return false, err
}
