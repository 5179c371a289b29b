package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/crannog/crannog/internal/sandbox"
)

const snapshotColumns = `id, name, owner, sandbox, parent, template_id, template, files_only, created_at, bytes, format, sum,
	base, base_copy, limits, workspace, access, pid, process_start, engine, kept_for`

// InsertSnapshot adds the row of a snapshot. Lists omit the row until KeepSnapshot sets its digest.
func (s *Store) InsertSnapshot(ctx context.Context, n sandbox.Stored) error {
	var texts [3]string
	for i, v := range []any{n.Base, n.Limits, n.Access} {
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("insert snapshot %s: %w", n.ID, err)
		}
		texts[i] = string(b)
	}
	_, err := s.exec(ctx, `INSERT INTO snapshots (`+snapshotColumns+`) VALUES (`+placeholders(21)+`)`,
		n.ID, n.Name, n.Owner, n.Sandbox, n.Parent, n.TemplateID, n.Template, n.FilesOnly, nanos(n.CreatedAt), n.Bytes, n.Format, n.Sum,
		texts[0], n.Base.Copy, texts[1], n.Workspace, texts[2], n.Process.PID, n.Process.Start, n.Engine, n.KeptFor)
	if err != nil {
		return fmt.Errorf("insert snapshot %s: %w", n.ID, classify(err))
	}
	return nil
}

// KeepSnapshot stores the digest and size of a complete snapshot, which makes it visible and its
// sandbox's current one. An older snapshot with the same name loses that name.
func (s *Store) KeepSnapshot(ctx context.Context, id, sum string, bytes int64, needs *sandbox.Needs) error {
	var files []byte // nil leaves the base unchanged
	if needs != nil {
		var err error
		if files, err = json.Marshal(needs); err != nil {
			return err
		}
	}
	return s.transact(ctx, "keep snapshot "+id, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE snapshots SET name = '' WHERE id <> ? AND name <> ''
			AND (owner, name) = (SELECT owner, name FROM snapshots WHERE id = ?) AND sum <> ''`, id, id); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `UPDATE snapshots SET sum = ?1, bytes = ?2,
			base = CASE WHEN ?3 = '' THEN base ELSE json_set(base, '$.needs', json(?3)) END WHERE id = ?4 AND sum = ''`, sum, bytes, string(files), id)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, errors.New("the row of the snapshot is gone"))
		}
		_, err = tx.ExecContext(ctx, `UPDATE sandboxes SET at_snapshot = ? WHERE id = (SELECT sandbox FROM snapshots WHERE id = ?)`, id, id)
		return err
	})
}

// GetSnapshot finds a row by its ID.
func (s *Store) GetSnapshot(ctx context.Context, id string) (sandbox.Stored, error) {
	n, err := decodeSnapshot(s.db.QueryRowContext(ctx, `SELECT `+snapshotColumns+` FROM snapshots WHERE id = ?`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Stored{}, sandbox.SnapshotUnknown(id)
	}
	if err != nil {
		return sandbox.Stored{}, fmt.Errorf("get snapshot %s: %w", id, classify(err))
	}
	return n, nil
}

// ListSnapshots returns the rows that a query selects, newest first.
func (s *Store) ListSnapshots(ctx context.Context, q sandbox.SnapshotQuery) ([]sandbox.Stored, error) {
	var u update
	if q.Unfinished {
		u.require(`sum = ''`)
	} else {
		u.require(`sum <> ''`)
	}
	if !q.Templates {
		u.require(`kept_for = ''`)
	}
	if !q.AllOwners {
		u.require(`owner = ?`, q.Owner)
	}
	if q.Sandbox != "" {
		u.require(`sandbox = ?`, q.Sandbox)
	}
	if q.Name != "" {
		u.require(`name = ?`, q.Name)
	}
	if !q.CreatedBefore.IsZero() {
		u.require(`created_at < ?`, nanos(q.CreatedBefore))
	}
	if q.AfterID != "" {
		u.require(`(created_at, id) < (?, ?)`, nanos(q.AfterTime), q.AfterID)
	}
	limit := q.Limit
	if limit == 0 {
		limit = -1 // SQLite's value for no limit
	}
	rows, err := s.db.QueryContext(ctx, `SELECT `+snapshotColumns+` FROM snapshots WHERE `+u.where+
		` ORDER BY created_at DESC, id DESC LIMIT ?`, append(u.whereArgs, limit)...)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", classify(err))
	}
	defer rows.Close()
	var out []sandbox.Stored
	for rows.Next() {
		n, err := decodeSnapshot(rows)
		if err != nil {
			return nil, fmt.Errorf("list snapshots: %w", classify(err))
		}
		out = append(out, n)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list snapshots: %w", classify(err))
	}
	return out, nil
}

// DeleteSnapshot removes a row. Its parent becomes the parent of its children, so that the tree
// stays connected.
func (s *Store) DeleteSnapshot(ctx context.Context, id string) error {
	return s.transact(ctx, "delete snapshot "+id, func(tx *sql.Tx) error {
		for _, query := range []string{
			`UPDATE snapshots SET parent = (SELECT parent FROM snapshots WHERE id = ?1) WHERE parent = ?1 AND EXISTS (SELECT 1 FROM snapshots WHERE id = ?1)`,
			`UPDATE sandboxes SET at_snapshot = (SELECT parent FROM snapshots WHERE id = ?1) WHERE at_snapshot = ?1 AND EXISTS (SELECT 1 FROM snapshots WHERE id = ?1)`,
			`DELETE FROM snapshots WHERE id = ?1`,
		} {
			if _, err := tx.ExecContext(ctx, query, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// Holds reports whether a copy of a workspace is needed by a snapshot, or by a sandbox other than
// except.
func (s *Store) Holds(ctx context.Context, workspaceCopy, except string) (bool, error) {
	var held bool
	err := s.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM sandboxes WHERE base_copy = ?1 AND state <> 'stopped' AND id <> ?2)
		OR EXISTS (SELECT 1 FROM snapshots WHERE base_copy = ?1)`, workspaceCopy, except).Scan(&held)
	if err != nil {
		return false, fmt.Errorf("find users of workspace copy %s: %w", workspaceCopy, classify(err))
	}
	return held, nil
}

// HoldsImage reports whether a snapshot or a sandbox needs an image.
func (s *Store) HoldsImage(ctx context.Context, id string) (bool, error) {
	var held bool
	err := s.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM snapshots WHERE id = ?1)
		OR EXISTS (SELECT 1 FROM sandboxes WHERE image = ?1 AND state IN ('pausing', 'paused', 'resuming'))`, id).Scan(&held)
	if err != nil {
		return false, fmt.Errorf("find users of image %s: %w", id, classify(err))
	}
	return held, nil
}

// SumOf returns the digest of an image, or "" if no row has it.
func (s *Store) SumOf(ctx context.Context, id string) (string, error) {
	var sum string
	err := s.db.QueryRowContext(ctx, `SELECT coalesce((SELECT sum FROM snapshots WHERE id = ?1),
		(SELECT saved ->> 'sum' FROM sandboxes WHERE image = ?1 AND state IN ('pausing', 'paused', 'resuming')), '')`, id).Scan(&sum)
	if err != nil {
		return "", fmt.Errorf("digest of image %s: %w", id, classify(err))
	}
	return sum, nil
}

func decodeSnapshot(row interface{ Scan(...any) error }) (sandbox.Stored, error) {
	var n sandbox.Stored
	var created int64
	var texts [3]string
	var baseCopy string // a column that only queries use; n.Base has the same value
	if err := row.Scan(&n.ID, &n.Name, &n.Owner, &n.Sandbox, &n.Parent, &n.TemplateID, &n.Template, &n.FilesOnly, &created, &n.Bytes, &n.Format, &n.Sum,
		&texts[0], &baseCopy, &texts[1], &n.Workspace, &texts[2], &n.Process.PID, &n.Process.Start, &n.Engine, &n.KeptFor); err != nil {
		return sandbox.Stored{}, err
	}
	for i, v := range []any{&n.Base, &n.Limits, &n.Access} {
		if err := json.Unmarshal([]byte(texts[i]), v); err != nil {
			return sandbox.Stored{}, fmt.Errorf("row %s: %w", n.ID, err)
		}
	}
	n.CreatedAt = timeOf(created)
	return n, nil
}
