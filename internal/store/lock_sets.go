package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages/lockfile"
	"github.com/crannog/crannog/internal/sandbox"
)

// lockSetsSchema adds the sets of lockfiles of workspaces. A copy, a snapshot and a sandbox that
// starts from one share a set, which is removed with the last of them.
const lockSetsSchema = `
	CREATE TABLE lock_sets (digest TEXT PRIMARY KEY, entries BLOB NOT NULL) STRICT, WITHOUT ROWID;
	CREATE TRIGGER sandbox_lock_set AFTER DELETE ON sandboxes WHEN old.base ->> 'locked' IS NOT NULL BEGIN
		` + dropLockSet + `
	END;
	CREATE TRIGGER snapshot_lock_set AFTER DELETE ON snapshots WHEN old.base ->> 'locked' IS NOT NULL BEGIN
		` + dropLockSet + `
	END;`

const dropLockSet = `DELETE FROM lock_sets WHERE digest = old.base ->> 'locked'
			AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE base ->> 'locked' = old.base ->> 'locked')
			AND NOT EXISTS (SELECT 1 FROM snapshots WHERE base ->> 'locked' = old.base ->> 'locked');`

// insertRow adds a row, with its set of lockfiles in the same transaction. It returns the number of
// inserted rows.
func (s *Store) insertRow(ctx context.Context, r sandbox.Row, query string, args []any) (inserted int64, err error) {
	if r.Locked == nil {
		res, err := s.exec(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		return res.RowsAffected()
	}
	digest, text, err := r.Locked.Encode()
	if err != nil {
		return 0, err
	}
	if digest != r.Base.Locked {
		return 0, errors.New("the row has another set of lockfiles than its base")
	}
	err = s.transact(ctx, "insert sandbox "+r.ID, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO lock_sets (digest, entries) VALUES (?, ?)`, digest, text); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		if inserted, err = res.RowsAffected(); err == nil && inserted == 0 {
			return errNotInserted
		}
		return err
	})
	if errors.Is(err, errNotInserted) {
		return 0, nil
	}
	return inserted, err
}

// errNotInserted rolls back the transaction of a row that was not inserted.
var errNotInserted = errors.New("the row was not inserted")

// LockSet returns the set of lockfiles with a digest.
func (s *Store) LockSet(ctx context.Context, digest string) (*lockfile.Set, error) {
	var text []byte
	err := s.db.QueryRowContext(ctx, `SELECT entries FROM lock_sets WHERE digest = ?`, digest).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.New(fault.Conflict, "lockfiles_gone", "the lockfiles of the workspace as they were when the sandbox was created are not stored any more").
			WithHint("create a new sandbox")
	}
	if err != nil {
		return nil, fmt.Errorf("get lockfiles %s: %w", digest, classify(err))
	}
	set := &lockfile.Set{}
	if err := json.Unmarshal(text, set); err != nil {
		return nil, fmt.Errorf("lockfiles %s: %w", digest, err)
	}
	if got, _, err := set.Encode(); err != nil || got != digest {
		return nil, errors.Join(fmt.Errorf("lockfiles %s are damaged", digest), err)
	}
	return set, nil
}
