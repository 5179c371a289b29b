package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"sync"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

const (
	indexName = "index.db"
	// indexVersion changes with the tables. An index of another version is rebuilt.
	indexVersion = 1
	indexBatch   = 8192
)

// index finds entries without reading the whole log. The lines are authoritative: missing entries
// are indexed from them, and an index that contradicts them is rebuilt.
type index struct {
	log *Log

	mu      sync.Mutex
	db      *sql.DB // opened at the first use
	created bool    // this process created or rebuilt db
	closed  bool
}

func (x *index) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	if x.db == nil {
		return nil
	}
	err := x.db.Close()
	x.db = nil
	return err
}

// errStale is returned for an index of another audit log or another version.
var errStale = errors.New("the index does not belong to these lines")

// current returns the index with all durable entries. For a damaged log it has the entries before
// the damage, and the error describes the damage.
func (x *index) current(ctx context.Context) (*sql.DB, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, fs.ErrClosed
	}
	err := x.update(ctx)
	if err == nil || ctx.Err() != nil || isDamage(err) && x.created {
		return x.db, err
	}
	// Rebuilding repairs any defect of the index. If the lines are defective, the new index fails
	// in the same way.
	x.log.log.Warn("index of the audit log rebuilt", "err", err)
	if err := x.drop(); err != nil {
		return nil, err
	}
	x.created = true
	err = x.update(ctx)
	return x.db, err
}

// update opens the index if necessary, and adds the missing entries.
func (x *index) update(ctx context.Context) error {
	if err := x.open(ctx); err != nil {
		return err
	}
	return x.catchUp(ctx)
}

// drop closes and removes the index.
func (x *index) drop() error {
	var errs []error
	if x.db != nil {
		errs = append(errs, x.db.Close())
		x.db = nil
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(x.log.path(indexName + suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (x *index) open(ctx context.Context) error {
	if x.db != nil {
		return nil
	}
	path := x.log.path(indexName)
	// Create the file with the right mode before SQLite creates it with another one.
	f, err := openAt(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(NORMAL)"}, "_txlock": {"immediate"},
	}.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(4)
	if err := x.prepare(ctx, db); err != nil {
		return errors.Join(err, db.Close())
	}
	x.db = db
	return nil
}

// prepare creates the tables of a new index, and returns errStale for one of another version.
func (x *index) prepare(ctx context.Context, db *sql.DB) error {
	var version int
	if err := db.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version); err != nil {
		return err
	}
	switch version {
	case indexVersion:
		return nil
	case 0:
	default:
		return errStale
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	// Another process may have created the tables in the meantime.
	_, err = tx.ExecContext(ctx, `
		CREATE TABLE IF NOT EXISTS entries (
			seq INTEGER PRIMARY KEY,
			time INTEGER NOT NULL,
			kind TEXT NOT NULL,
			sandbox TEXT NOT NULL,
			segment INTEGER NOT NULL,
			place INTEGER NOT NULL
		) STRICT;
		CREATE INDEX IF NOT EXISTS entries_by_sandbox ON entries (sandbox, seq) WHERE sandbox <> '';
		CREATE INDEX IF NOT EXISTS entries_by_kind ON entries (kind, seq);
		CREATE INDEX IF NOT EXISTS entries_by_time ON entries (time);
		CREATE TABLE IF NOT EXISTS positions (source TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT;
		CREATE TABLE IF NOT EXISTS state (
			only INTEGER PRIMARY KEY CHECK (only = 0),
			next INTEGER NOT NULL,
			prev TEXT NOT NULL,
			segment INTEGER NOT NULL,
			place INTEGER NOT NULL
		) STRICT;
		INSERT OR IGNORE INTO state VALUES (0, 0, '', 0, 0);
		PRAGMA user_version = `+fmt.Sprint(indexVersion))
	if err == nil {
		return tx.Commit()
	}
	return errors.Join(err, tx.Rollback())
}

// catchUp adds the missing entries.
func (x *index) catchUp(ctx context.Context) error {
	first, size, err := x.log.extent()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for {
		var next int64
		if err := x.db.QueryRowContext(ctx, `SELECT next FROM state`).Scan(&next); err != nil {
			return err
		}
		if next == size {
			return nil
		}
		if next > size {
			// Another process may have added entries in the meantime.
			if _, size, err = x.log.extent(); err != nil {
				return err
			}
			if next > size {
				return errStale
			}
			continue
		}
		if err := x.add(ctx, first, min(size, max(next, first)+indexBatch)); err != nil {
			return err
		}
	}
}

// add indexes the missing entries with numbers below to, in one transaction. first is the oldest
// remaining entry.
func (x *index) add(ctx context.Context, first, to int64) error {
	tx, err := x.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err = x.addInTx(ctx, tx, first, to); err == nil || isDamage(err) {
		return errors.Join(err, tx.Commit())
	}
	return errors.Join(err, tx.Rollback())
}

// addInTx is add within a transaction. It keeps the entries before a damaged one.
func (x *index) addInTx(ctx context.Context, tx *sql.Tx, first, to int64) error {
	var at spot
	var prev string
	if err := tx.QueryRowContext(ctx, `SELECT next, prev, segment, place FROM state`).Scan(&at.seq, &prev, &at.first, &at.offset); err != nil {
		return err
	}
	if at.seq < first {
		// Older entries were dropped.
		at, prev = spot{seq: first}, ""
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM entries WHERE seq < ?`, first); err != nil {
		return err
	}
	insert, err := tx.PrepareContext(ctx, `INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)`)
	if err != nil {
		return err
	}
	defer insert.Close()
	next := at
	err = x.log.walk(at, at.seq, to, func(s spot, line []byte) error {
		e, err := decode(line)
		if err != nil {
			return err
		}
		if e.Seq != s.seq {
			return damageError("entry %d is at the place of entry %d", e.Seq, s.seq)
		}
		if prev != "" && e.Prev != prev {
			return errStale
		}
		if _, err := insert.ExecContext(ctx, e.Seq, e.Time.UnixMicro(), string(e.Kind), e.Sandbox, s.first, s.offset); err != nil {
			return err
		}
		if e.Source != "" {
			if _, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO positions VALUES (?, ?)`, e.Source, int64(e.At)); err != nil {
				return err
			}
		}
		prev = hashOf(line)
		next = spot{s.seq + 1, s.first, s.offset + int64(len(line)) + 1}
		return nil
	})
	if err != nil && !isDamage(err) {
		return err
	}
	_, update := tx.ExecContext(ctx, `UPDATE state SET next = ?, prev = ?, segment = ?, place = ?`, next.seq, prev, next.first, next.offset)
	return errors.Join(err, update)
}
