package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/state/key"
)

var _ key.Store = (*Store)(nil)

// InsertKey adds a key by its hash.
func (s *Store) InsertKey(ctx context.Context, k key.Key) error {
	_, err := s.execChanged(ctx, "insert key "+k.ID,
		`INSERT INTO keys (id, name, opens, hash, created_at, used_at) VALUES (?, ?, ?, ?, ?, 0)`,
		k.ID, k.Name, string(k.Opens), k.Hash[:], nanos(k.Created))
	return err
}

// KeyByHash finds a key, or returns NotFound.
func (s *Store) KeyByHash(ctx context.Context, hash [32]byte) (key.Key, error) {
	k, err := decodeKey(s.db.QueryRowContext(ctx,
		`SELECT id, name, opens, hash, created_at, used_at FROM keys WHERE hash = ?`, hash[:]))
	if errors.Is(err, sql.ErrNoRows) {
		return key.Key{}, fault.New(fault.NotFound, "key_not_found", "no such key")
	}
	if err != nil {
		return key.Key{}, fmt.Errorf("find key: %w", classify(err))
	}
	return k, nil
}

// Keys returns all keys, oldest first.
func (s *Store) Keys(ctx context.Context) ([]key.Key, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT id, name, opens, hash, created_at, used_at FROM keys ORDER BY created_at, id`)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", classify(err))
	}
	defer rows.Close()
	var out []key.Key
	for rows.Next() {
		k, err := decodeKey(rows)
		if err != nil {
			return nil, fmt.Errorf("list keys: %w", err)
		}
		out = append(out, k)
	}
	return out, rows.Err()
}

// UseKey stores when a key was last used.
func (s *Store) UseKey(ctx context.Context, id string, at time.Time) error {
	_, err := s.execChanged(ctx, "use key "+id, `UPDATE keys SET used_at = max(used_at, ?) WHERE id = ?`, nanos(at), id)
	return err
}

// DeleteKey removes a key and reports whether it existed.
func (s *Store) DeleteKey(ctx context.Context, id string) (bool, error) {
	return s.execChanged(ctx, "delete key "+id, `DELETE FROM keys WHERE id = ?`, id)
}

func decodeKey(row interface{ Scan(...any) error }) (key.Key, error) {
	var k key.Key
	var hash []byte
	var created, used int64
	if err := row.Scan(&k.ID, &k.Name, &k.Opens, &hash, &created, &used); err != nil {
		return key.Key{}, err
	}
	if len(hash) != len(k.Hash) {
		return key.Key{}, fmt.Errorf("key %s: hash of %d bytes", k.ID, len(hash))
	}
	copy(k.Hash[:], hash)
	k.Created, k.LastUsed = timeOf(created), timeOf(used)
	return k, nil
}
