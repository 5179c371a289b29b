package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/crannog/crannog/internal/sandbox"
)

// keepEntries limits the log of one sandbox, so that a client that changes the timeout in a loop
// does not fill the disk.
const keepEntries = 200

// Append adds a line to a sandbox's log and removes the oldest lines beyond the limit. For a
// removed sandbox it does nothing.
func (s *Store) Append(ctx context.Context, id string, e sandbox.LogEntry) (err error) {
	fields, err := json.Marshal(e.Fields)
	if err != nil {
		return fmt.Errorf("log of sandbox %s: %w", id, err)
	}
	if _, err := s.exec(ctx, `INSERT INTO sandbox_logs (sandbox, at, level, message, fields)
		SELECT id, ?, ?, ?, ? FROM sandboxes WHERE id = ?`, nanos(e.At), e.Level, e.Message, string(fields), id); err != nil {
		return fmt.Errorf("log of sandbox %s: %w", id, classify(err))
	}
	if _, err := s.exec(ctx, `DELETE FROM sandbox_logs WHERE sandbox = ? AND seq <=
		(SELECT seq FROM sandbox_logs WHERE sandbox = ? ORDER BY seq DESC LIMIT 1 OFFSET ?)`, id, id, keepEntries); err != nil {
		return fmt.Errorf("log of sandbox %s: %w", id, classify(err))
	}
	return nil
}

// Entries returns the log of a sandbox, oldest first.
func (s *Store) Entries(ctx context.Context, id string) ([]sandbox.LogEntry, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT at, level, message, fields FROM sandbox_logs WHERE sandbox = ? ORDER BY seq`, id)
	if err != nil {
		return nil, fmt.Errorf("log of sandbox %s: %w", id, classify(err))
	}
	defer rows.Close()
	var out []sandbox.LogEntry
	for rows.Next() {
		var e sandbox.LogEntry
		var at int64
		var fields string
		if err := rows.Scan(&at, &e.Level, &e.Message, &fields); err != nil {
			return nil, fmt.Errorf("log of sandbox %s: %w", id, err)
		}
		if err := json.Unmarshal([]byte(fields), &e.Fields); err != nil {
			return nil, fmt.Errorf("log of sandbox %s: %w", id, err)
		}
		e.At = timeOf(at)
		out = append(out, e)
	}
	return out, rows.Err()
}
