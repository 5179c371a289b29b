// Package store owns the data that must survive a crash: sandboxes, their logs, snapshots, approval
// requests, secrets and keys, in one SQLite file that several processes may have open.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/diskroom"
)

// FileName is the database's name in the state directory. It has the access tokens of live
// sandboxes in plain text, because a restarted server must be able to use its sandboxes. So only
// its user may read it. It has only hashes of keys.
const FileName = "crannog.db"

// Store is the open database. It is safe for concurrent use.
type Store struct {
	db      *database
	dir     string
	reserve *diskroom.Reserve
	// writing queues this process's writers. SQLite allows one write at a time and makes the others
	// sleep and retry. Of 32 concurrent writers the slowest waited 700 ms without the queue, and 40
	// ms with it.
	writing sync.Mutex
}

// Open opens the database in a state directory, which it creates if necessary, and migrates its
// tables.
func Open(ctx context.Context, dir string) (*Store, error) {
	path, err := prepare(dir)
	if err != nil {
		return nil, fmt.Errorf("open store in %s: %w", dir, err)
	}
	db, err := sql.Open("sqlite", source(path))
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	// Readers do not wait for each other. Writers wait for the file's lock, not for a connection.
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	s := &Store{db: newDatabase(db), dir: filepath.Dir(path), reserve: diskroom.New(filepath.Dir(path))}
	// Opening needs disk space too, for the write-ahead log and its index.
	if err := s.retryFull(func() error { return migrateWhenFree(ctx, db) }); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", path, err), db.Close())
	}
	return s, nil
}

// busyTimeout is how long to wait for other processes, whose writes take milliseconds.
const busyTimeout = 10 * time.Second

// migrateWhenFree migrates the database. While another process switches a new file to WAL, SQLite
// returns "busy" without waiting, so migrateWhenFree waits.
func migrateWhenFree(ctx context.Context, db *sql.DB) error {
	ctx, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	for {
		err := classify(migrate(ctx, db))
		if fault.CodeOf(err) != codeBusy {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// exec executes a write.
func (s *Store) exec(ctx context.Context, query string, args ...any) (res sql.Result, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	err = s.retryFull(func() error {
		res, err = s.db.ExecContext(ctx, query, args...)
		return err
	})
	return res, err
}

// Close closes the database. Sandboxes continue to run.
func (s *Store) Close() error { return s.db.Close() }

// source returns the connection string. The settings are part of it, because they apply to each
// connection.
func source(path string) string {
	q := url.Values{"_pragma": {
		// Another process may hold the lock during a write.
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
		"journal_mode(WAL)",
		// With WAL this loses commits only if the machine crashes, not if a process is killed.
		// After a machine crash, the sandboxes are gone too.
		"synchronous(NORMAL)",
		"foreign_keys(ON)",
	}, "_txlock": {"immediate"}}
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	return u.String()
}

// prepare creates the directory and the file with private modes, before SQLite could create them
// with wider ones.
func prepare(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := CheckPrivate(dir); err != nil {
		return "", err
	}
	// File names reveal sandboxes, and a file with a wider mode would be readable by all users of
	// the machine.
	if err := os.Chmod(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, FileName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err == nil {
		return path, f.Close()
	}
	if !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	// A file that others can read would reveal the tokens in it.
	return path, os.Chmod(path, 0o600)
}

// CheckPrivate rejects a state directory in which other users could create files: a database or a
// program of theirs, or a link in place of Crannog's. A directory that does not exist yet is
// private.
func CheckPrivate(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fault.Newf(fault.Denied, "state_not_private", "state directory %s is in a directory that this user may not enter, so it belongs to another user", dir).
			WithHint("use one of your own: --state DIR, or CRANNOG_STATE")
	case err != nil:
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok {
		return fault.Newf(fault.Invalid, "state_not_directory", "state path %s is not a directory", dir)
	}
	if int(st.Uid) != os.Geteuid() {
		return fault.Newf(fault.Denied, "state_not_private", "state directory %s belongs to another user (%d), and this is user %d", dir, st.Uid, os.Geteuid()).
			WithHint("use one of your own: --state DIR, or CRANNOG_STATE; as the user that owns it, run crannog as that user")
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fault.Newf(fault.Denied, "state_not_private", "state directory %s can be written by others", dir).
			WithHint("chmod go-w " + dir)
	}
	return nil
}

const codeBusy = "store_busy"

// classify converts errors of SQLite that a caller can act on.
func classify(err error) error {
	if fault.KindOf(err) != fault.Internal {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.Wrap(err, fault.Timeout, "store_slow", "the store did not answer in time").
			WithHint("this host may have more to do than it can; try again")
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fault.Wrap(err, fault.Unavailable, codeBusy, "the store is busy, try again")
	case sqlite3.SQLITE_FULL:
		return full(err)
	case sqlite3.SQLITE_IOERR:
		// The index of the write-ahead log could not be extended.
		if e.Code() == sqlite3.SQLITE_IOERR_SHMSIZE {
			return full(err)
		}
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
		return fault.Wrap(err, fault.Internal, "store_damaged", "the store is damaged")
	}
	return err
}

func full(err error) error {
	return fault.Wrap(err, fault.Exhausted, CodeFull, "the disk of the state directory is full").
		WithHint("remove sandboxes or snapshots: crannog rm, crannog snapshot rm")
}

func isUnique(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE
}

// Check reads from the database and checks that it can be written.
func (s *Store) Check(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("check the database: %w", classify(err))
	}
	var n int
	err = tx.QueryRowContext(ctx, `SELECT 1`).Scan(&n)
	if rollbackErr := tx.Rollback(); err == nil {
		err = rollbackErr
	}
	if err != nil {
		return fmt.Errorf("check the database: %w", classify(err))
	}
	return nil
}
