package store

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// maxPrepared limits the cached prepared statements. The store has some sixty, and a few that
// depend on a caller's filter.
const maxPrepared = 200

// database caches prepared statements. SQLite takes as long to parse a statement as to execute it,
// 0.1 to 0.3 ms, and a creation needs several.
type database struct {
	*sql.DB

	mu       sync.Mutex
	prepared map[string]*sql.Stmt
}

func newDatabase(db *sql.DB) *database {
	return &database{DB: db, prepared: map[string]*sql.Stmt{}}
}

// statement returns the prepared statement of a query, or nil if the cache is full.
func (d *database) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	d.mu.Lock()
	s, full := d.prepared[query], len(d.prepared) >= maxPrepared
	d.mu.Unlock()
	if s != nil || full {
		return s, nil
	}
	// Prepare without holding the lock, so that existing queries do not wait.
	s, err := d.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if existing := d.prepared[query]; existing != nil {
		return existing, s.Close() //nolint:sqlclosecheck // the statement is returned unless another was faster
	}
	d.prepared[query] = s
	return s, nil
}

// ExecContext is like ExecContext of *sql.DB, but caches the prepared statement.
func (d *database) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	s, err := d.statement(ctx, query) //nolint:sqlclosecheck // Close closes all prepared statements
	if err != nil {
		return nil, err
	}
	if s == nil {
		return d.DB.ExecContext(ctx, query, args...)
	}
	return s.ExecContext(ctx, args...)
}

// QueryContext is like QueryContext of *sql.DB, but caches the prepared statement.
func (d *database) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := d.statement(ctx, query) //nolint:sqlclosecheck // Close closes all prepared statements
	if err != nil {
		return nil, err
	}
	if s == nil {
		return d.DB.QueryContext(ctx, query, args...)
	}
	return s.QueryContext(ctx, args...)
}

// QueryRowContext is like QueryRowContext of *sql.DB, but caches the prepared statement.
func (d *database) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	s, err := d.statement(ctx, query) //nolint:sqlclosecheck // Close closes all prepared statements
	if err != nil || s == nil {
		// A row returns its error when it is scanned.
		return d.DB.QueryRowContext(ctx, query, args...)
	}
	return s.QueryRowContext(ctx, args...)
}

// Close closes the statements and the database.
func (d *database) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for query, s := range d.prepared {
		errs = append(errs, s.Close())
		delete(d.prepared, query)
	}
	return errors.Join(append(errs, d.DB.Close())...)
}
