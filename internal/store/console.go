package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/console/session"
)

// consoleSchema creates the tables of tokens and sessions of the web console. Only hashes of tokens
// and cookies are stored.
const consoleSchema = `
	CREATE TABLE console_tokens (
		hash BLOB PRIMARY KEY,
		name TEXT NOT NULL,
		scope INTEGER NOT NULL CHECK (scope BETWEEN 1 AND 3),
		life INTEGER NOT NULL,
		expires_at INTEGER NOT NULL
	) STRICT, WITHOUT ROWID;
	CREATE TABLE console_sessions (
		hash BLOB PRIMARY KEY,
		id TEXT NOT NULL UNIQUE,
		name TEXT NOT NULL,
		scope INTEGER NOT NULL CHECK (scope BETWEEN 1 AND 3),
		created_at INTEGER NOT NULL,
		expires_at INTEGER NOT NULL
	) STRICT, WITHOUT ROWID;`

var _ session.Store = (*Store)(nil)

// InsertConsoleToken implements session.Store.
func (s *Store) InsertConsoleToken(ctx context.Context, t session.Token) error {
	_, err := s.execChanged(ctx, "insert console token",
		`INSERT INTO console_tokens (hash, name, scope, life, expires_at) VALUES (?, ?, ?, ?, ?)`,
		t.Hash[:], t.Name, int64(t.Scope), int64(t.Life), nanos(t.Expires))
	return err
}

// TakeConsoleToken implements session.Store. One statement finds and deletes the token, so that
// only one of two callers can use it.
func (s *Store) TakeConsoleToken(ctx context.Context, h session.Hash) (session.Token, error) {
	var t session.Token
	// Look the token up first, so that a guessed token does not wait for the write lock.
	var known bool
	if err := s.db.QueryRowContext(ctx, `SELECT count(*) > 0 FROM console_tokens WHERE hash = ?`, h[:]).Scan(&known); err != nil {
		return t, fmt.Errorf("take console token: %w", classify(err))
	}
	if !known {
		return t, fault.New(fault.NotFound, "token_not_found", "no such token")
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	var hash []byte
	var expires int64
	err := s.db.QueryRowContext(ctx, `DELETE FROM console_tokens WHERE hash = ? RETURNING hash, name, scope, life, expires_at`, h[:]).
		Scan(&hash, &t.Name, &t.Scope, &t.Life, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return session.Token{}, fault.New(fault.NotFound, "token_not_found", "no such token")
	}
	if err != nil {
		return session.Token{}, fmt.Errorf("take console token: %w", classify(err))
	}
	t.Expires = timeOf(expires)
	if t.Hash, err = consoleHash(hash); err != nil {
		return session.Token{}, err
	}
	return t, nil
}

// InsertConsoleSession implements session.Store.
func (s *Store) InsertConsoleSession(ctx context.Context, h session.Hash, v session.Session) error {
	_, err := s.execChanged(ctx, "insert console session "+v.ID,
		`INSERT INTO console_sessions (hash, id, name, scope, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?)`,
		h[:], v.ID, v.Name, int64(v.Scope), nanos(v.CreatedAt), nanos(v.ExpiresAt))
	return err
}

const sessionColumns = `hash, id, name, scope, created_at, expires_at`

// ConsoleSession implements session.Store.
func (s *Store) ConsoleSession(ctx context.Context, h session.Hash) (session.Hash, session.Session, error) {
	stored, v, err := decodeSession(s.db.QueryRowContext(ctx, `SELECT `+sessionColumns+` FROM console_sessions WHERE hash = ?`, h[:]))
	if errors.Is(err, sql.ErrNoRows) {
		return stored, v, fault.New(fault.NotFound, "session_not_found", "no such session")
	}
	if err != nil {
		return stored, v, fmt.Errorf("find console session: %w", classify(err))
	}
	return stored, v, nil
}

// ConsoleSessions implements session.Store.
func (s *Store) ConsoleSessions(ctx context.Context) ([]session.Session, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT `+sessionColumns+` FROM console_sessions ORDER BY created_at, id`)
	if err != nil {
		return nil, fmt.Errorf("list console sessions: %w", classify(err))
	}
	defer rows.Close()
	var out []session.Session
	for rows.Next() {
		_, v, err := decodeSession(rows)
		if err != nil {
			return nil, fmt.Errorf("list console sessions: %w", err)
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// DeleteConsoleSession implements session.Store.
func (s *Store) DeleteConsoleSession(ctx context.Context, id string) (bool, error) {
	return s.execChanged(ctx, "delete console session "+id, `DELETE FROM console_sessions WHERE id = ?`, id)
}

// RemoveExpiredTokens implements session.Store.
func (s *Store) RemoveExpiredTokens(ctx context.Context, now time.Time) (remaining int, err error) {
	if _, err := s.execChanged(ctx, "sweep console tokens", `DELETE FROM console_tokens WHERE expires_at <= ?`, nanos(now)); err != nil {
		return 0, err
	}
	if err := s.db.QueryRowContext(ctx, `SELECT count(*) FROM console_tokens`).Scan(&remaining); err != nil {
		return 0, fmt.Errorf("count console tokens: %w", classify(err))
	}
	return remaining, nil
}

func decodeSession(row interface{ Scan(...any) error }) (h session.Hash, v session.Session, err error) {
	var hash []byte
	var created, expires int64
	if err := row.Scan(&hash, &v.ID, &v.Name, &v.Scope, &created, &expires); err != nil {
		return h, session.Session{}, err
	}
	v.CreatedAt, v.ExpiresAt = timeOf(created), timeOf(expires)
	h, err = consoleHash(hash)
	return h, v, err
}

func consoleHash(b []byte) (h session.Hash, err error) {
	if len(b) != len(h) {
		return h, fmt.Errorf("hash of a console token or session has %d bytes, want %d", len(b), len(h))
	}
	copy(h[:], b)
	return h, nil
}
