package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/fault"
)

var _ secrets.Store = (*Store)(nil)

// InsertSecret adds a secret with its first version.
func (s *Store) InsertSecret(ctx context.Context, info secrets.Info, v secrets.Sealed, limit int) error {
	metadata, err := encodeMetadata(info.Metadata)
	if err != nil {
		return fmt.Errorf("insert secret %s: %w", info.ID, err)
	}
	return s.transact(ctx, "insert secret "+info.ID, func(tx *sql.Tx) error {
		var count int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM secrets WHERE owner = ?`, info.Owner).Scan(&count); err != nil {
			return err
		}
		if count >= limit {
			return fault.Newf(fault.Exhausted, "too_many_secrets", "the limit of %d secrets is reached", count).
				WithHint("remove some")
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO secrets (id, owner, name, version, metadata, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			info.ID, info.Owner, info.Name, info.Version, metadata, nanos(info.Created), nanos(info.Updated))
		if isUnique(err) {
			return fault.Newf(fault.Exists, "secret_exists", "a secret %q exists already", info.Name).
				WithHint("give it a new value with: crannog secret rotate " + info.Name)
		}
		if err != nil {
			return err
		}
		return insertVersion(ctx, tx, info.ID, v)
	})
}

// AddSecretVersion makes v the current version.
func (s *Store) AddSecretVersion(ctx context.Context, info secrets.Info, v secrets.Sealed, keep secrets.Retention) error {
	metadata, err := encodeMetadata(info.Metadata)
	if err != nil {
		return fmt.Errorf("rotate secret %s: %w", info.ID, err)
	}
	return s.transact(ctx, "rotate secret "+info.ID, func(tx *sql.Tx) error {
		// The encryption binds the value to the name and the owner, so neither may have changed.
		res, err := tx.ExecContext(ctx, `UPDATE secrets SET version = ?, metadata = ?, updated_at = ?
			WHERE id = ? AND version = ? AND owner = ? AND name = ?`,
			v.Version, metadata, nanos(info.Updated), info.ID, v.Version-1, v.Owner, v.Name)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil {
			return err
		} else if n == 0 {
			return fault.New(fault.Conflict, "secret_changed", "the secret was changed or removed at the same time").WithHint("try again")
		}
		at := nanos(v.Created)
		if _, err := tx.ExecContext(ctx, `UPDATE secret_versions SET retired_at = ? WHERE secret = ? AND retired_at = 0`, at, info.ID); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM secret_versions WHERE secret = ? AND (retired_at < ? OR version <= ?)`,
			info.ID, nanos(v.Created.Add(-keep.For)), v.Version-1-int64(keep.Most)); err != nil {
			return err
		}
		return insertVersion(ctx, tx, info.ID, v)
	})
}

func insertVersion(ctx context.Context, tx *sql.Tx, id string, v secrets.Sealed) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO secret_versions (secret, version, sealed, wrapped, wrapped_by, created_at, retired_at) VALUES (?, ?, ?, ?, ?, ?, 0)`,
		id, v.Version, v.Box, v.Wrapped, v.By, nanos(v.Created))
	return err
}

// DeleteSecret removes a secret with all its versions.
func (s *Store) DeleteSecret(ctx context.Context, id string) (bool, error) {
	return s.execChanged(ctx, "delete secret "+id, `DELETE FROM secrets WHERE id = ?`, id)
}

// Rewrap replaces the wrapped data key of a generation, unless that was removed or rewrapped since
// it was read.
func (s *Store) Rewrap(ctx context.Context, v secrets.Sealed, wrapped []byte, by string) error {
	_, err := s.execChanged(ctx, "rewrap secret", `UPDATE secret_versions SET wrapped = ?, wrapped_by = ? WHERE seq = ? AND wrapped_by = ?`,
		wrapped, by, v.Generation, v.By)
	return err
}

func encodeMetadata(metadata map[string]string) (string, error) {
	if metadata == nil {
		metadata = map[string]string{}
	}
	b, err := json.Marshal(metadata)
	return string(b), err
}

const secretColumns = `s.id, s.owner, s.name, s.version, s.metadata, s.created_at, s.updated_at`

func decodeSecret(row interface{ Scan(...any) error }) (secrets.Info, error) {
	var info secrets.Info
	var metadata string
	var created, updated int64
	if err := row.Scan(&info.ID, &info.Owner, &info.Name, &info.Version, &metadata, &created, &updated); err != nil {
		return secrets.Info{}, err
	}
	if err := json.Unmarshal([]byte(metadata), &info.Metadata); err != nil {
		return secrets.Info{}, fmt.Errorf("secret %s: metadata: %w", info.ID, err)
	}
	info.Created, info.Updated = timeOf(created), timeOf(updated)
	return info, nil
}

// Secrets returns an owner's secrets, oldest first.
func (s *Store) Secrets(ctx context.Context, owner string) ([]secrets.Info, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT `+secretColumns+` FROM secrets s WHERE s.owner = ? ORDER BY s.created_at, s.id`, owner)
	if err != nil {
		return nil, fmt.Errorf("list secrets: %w", classify(err))
	}
	defer rows.Close()
	var out []secrets.Info
	for rows.Next() {
		info, err := decodeSecret(rows)
		if err != nil {
			return nil, fmt.Errorf("list secrets: %w", err)
		}
		out = append(out, info)
	}
	return out, rows.Err()
}

// FindSecret finds a secret with its versions in one transaction, so that no rotation happens
// between the two reads.
func (s *Store) FindSecret(ctx context.Context, owner, ref string) (secrets.Info, []secrets.Sealed, error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return secrets.Info{}, nil, fmt.Errorf("find secret: %w", classify(err))
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	info, err := decodeSecret(tx.QueryRowContext(ctx,
		`SELECT `+secretColumns+` FROM secrets s WHERE s.owner = ? AND (s.name = ? OR s.id = ?)`, owner, ref, ref))
	if errors.Is(err, sql.ErrNoRows) {
		return secrets.Info{}, nil, secrets.Unknown(ref)
	}
	if err != nil {
		return secrets.Info{}, nil, fmt.Errorf("find secret: %w", classify(err))
	}
	rows, err := tx.QueryContext(ctx, sealedQuery+` WHERE s.id = ? ORDER BY v.version DESC`, info.ID)
	if err != nil {
		return secrets.Info{}, nil, fmt.Errorf("find secret %s: %w", info.ID, classify(err))
	}
	versions, err := decodeSealed(rows)
	return info, versions, err
}

// SealedNotBy returns versions of all owners that were wrapped by another key.
func (s *Store) SealedNotBy(ctx context.Context, by string, limit int) ([]secrets.Sealed, error) {
	rows, err := s.db.QueryContext(ctx, sealedQuery+` WHERE v.wrapped_by <> ? ORDER BY v.seq LIMIT ?`, by, limit)
	if err != nil {
		return nil, fmt.Errorf("list sealed values: %w", classify(err))
	}
	return decodeSealed(rows)
}

const sealedQuery = `SELECT v.seq, s.owner, s.name, v.version, v.sealed, v.wrapped, v.wrapped_by, v.created_at, v.retired_at
	FROM secret_versions v JOIN secrets s ON s.id = v.secret`

func decodeSealed(rows *sql.Rows) ([]secrets.Sealed, error) {
	defer rows.Close()
	var out []secrets.Sealed
	for rows.Next() {
		var v secrets.Sealed
		var created, retired int64
		if err := rows.Scan(&v.Generation, &v.Owner, &v.Name, &v.Version, &v.Box, &v.Wrapped, &v.By, &created, &retired); err != nil {
			return nil, fmt.Errorf("read sealed value: %w", err)
		}
		v.Created, v.Retired = timeOf(created), timeOf(retired)
		out = append(out, v)
	}
	return out, rows.Err()
}
