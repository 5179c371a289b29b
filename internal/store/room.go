package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/diskroom"
)

// roomBytes is the space that the database can use while the disk is full. A removal needs some
// kilobytes.
const roomBytes = 4 << 20

// KeepRoom reserves disk space for the database, so that a sandbox that fills the disk can still be
// removed. It keeps free pages in the file, which are used first, and a write-ahead log of its
// usual length. For the rest it fills the reserve of the state directory. A server calls it
// periodically, because a reservation lasts only until it is used.
func (s *Store) KeepRoom(ctx context.Context) error {
	free, _, err := diskroom.Free(s.dir)
	if err != nil {
		return err
	}
	if free < 16*roomBytes {
		return nil
	}
	if err := s.ensureFreePages(ctx); err != nil {
		return fmt.Errorf("keep room in the store: %w", classify(err))
	}
	// SQLite locks neither this file nor the reserve, so opening and closing it here releases no
	// lock of this process.
	log, err := os.OpenFile(filepath.Join(s.dir, FileName+"-wal"), os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("keep room in the store: %w", err)
	}
	defer log.Close()
	if err := diskroom.Preallocate(log, 0, 2*roomBytes); err != nil {
		return err
	}
	return s.reserve.Fill()
}

// ensureFreePages ensures that the file has free pages that are allocated on the disk.
func (s *Store) ensureFreePages(ctx context.Context) error {
	var pages, size int64
	if err := s.db.QueryRowContext(ctx, `SELECT freelist_count, page_size FROM pragma_freelist_count, pragma_page_size`).Scan(&pages, &size); err != nil {
		return err
	}
	missing := roomBytes - pages*size
	if missing < roomBytes/2 {
		return nil
	}
	// Use two transactions: pages that one transaction takes and frees are never written. The bytes
	// are random, because a compressing file system would allocate less for equal bytes. SQLite's
	// own randomblob is much slower, and every start of a server would wait for it.
	row := make([]byte, 64<<10)
	err := s.transact(ctx, "fill", func(tx *sql.Tx) error {
		for range roomBytes / len(row) {
			rand.Read(row) // never fails: the runtime ends the program instead
			if _, err := tx.ExecContext(ctx, `INSERT INTO room VALUES (?)`, row); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	// The pragma returns counts, which are not needed: what it could not write stays in the log.
	var busy, logged, moved int64
	if err := s.db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &logged, &moved); err != nil {
		return err
	}
	_, err = s.exec(ctx, `DELETE FROM room`)
	return err
}

// CodeFull is the fault code of a full disk.
const CodeFull = "state_disk_full"

// retryFull retries a write with space from the reserve while the disk is full. Other processes may
// use that space first.
func (s *Store) retryFull(write func() error) error {
	for {
		err := write()
		if err == nil || fault.CodeOf(classify(err)) != CodeFull || !s.reserve.Release() {
			return err
		}
	}
}
