package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
)

// Snapshot creates a volume with the present content of another one. It asks inUse while no sandbox
// can attach the volume: the files of a running program could be half written.
func (s *Store) Snapshot(ctx context.Context, id string, req Request, inUse func() error) (Volume, error) {
	if err := CheckName(req.Name); err != nil {
		return Volume{}, err
	}
	from, held, err := s.hold(id, inUse)
	if err != nil {
		return Volume{}, err
	}
	defer held.Close()
	v := Volume{
		ID: ids.New(IDPrefix), Name: req.Name, Owner: req.Owner, Token: ids.NewToken(),
		Bytes: from.Bytes, Files: from.Files, Created: time.Now().UTC().Round(0), From: from.Name,
	}
	return s.create(ctx, v, req.Budget, func(dir string, _ *Volume) error {
		if !from.Enforced() {
			return s.copyTree(filepath.Join(s.at(id), treeName), filepath.Join(dir, treeName))
		}
		if err := os.Mkdir(filepath.Join(dir, mountName), 0o700); err != nil {
			return err
		}
		return copyImage(filepath.Join(s.at(id), imageName), filepath.Join(dir, imageName), from.Bytes)
	})
}

// hold unmounts a volume that nothing uses, and keeps others from attaching it until the returned
// file is closed.
func (s *Store) hold(id string, inUse func() error) (v Volume, held *os.File, err error) {
	all, err := s.lock()
	if err != nil {
		return v, nil, err
	}
	defer all.Close()
	if v, err = s.Get(id); err != nil {
		return v, nil, err
	}
	if err = inUse(); err != nil {
		return v, nil, err
	}
	if err = s.flush(v); err != nil {
		return v, nil, err
	}
	if err = s.unmount(v); err != nil {
		return v, nil, err
	}
	held, err = s.exclude(v, unix.LOCK_EX)
	return v, held, err
}

// flush writes everything that programs have written into the file of a volume. Its file system may
// still be mounted for sandboxes that only read, so unmounting it here does not write it.
func (s *Store) flush(v Volume) error {
	if !v.Enforced() {
		return nil
	}
	at, err := s.attach(v.ID)
	if err != nil {
		return err
	}
	dir, err := os.Open(at)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
}

// exclude locks the description of a volume: exclusively while it is copied, shared while it is
// mounted.
func (s *Store) exclude(v Volume, how int) (*os.File, error) {
	f, err := flock(filepath.Join(s.at(v.ID), metaName), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fault.Newf(fault.Unavailable, "volume_busy", "a snapshot of the volume %q is being made", v.Name).WithHint("try again")
	}
	return f, err
}

// copyImage copies the file of a volume. Where the host's file system can, the copy shares its
// blocks until one of them changes; otherwise only the written parts are copied.
func copyImage(from, to string, size int64) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if unix.IoctlFileClone(int(target.Fd()), int(source.Fd())) == nil {
		return errors.Join(target.Sync(), target.Close())
	}
	if err := errors.Join(target.Close(), os.Remove(to)); err != nil {
		return err
	}
	if err := allocate(to, size); err != nil {
		return err
	}
	if target, err = os.OpenFile(to, os.O_RDWR, 0); err != nil {
		return err
	}
	return errors.Join(copyWritten(target, source, size), target.Sync(), target.Close())
}

func copyWritten(target, source *os.File, size int64) error {
	for at := int64(0); at < size; {
		begin, err := unix.Seek(int(source.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // nothing was written after this
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(source.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(target, begin), io.NewSectionReader(source, begin, end-begin)); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// copyTree copies the files of a volume without a quota.
func (s *Store) copyTree(from, to string) error {
	if err := makeTree(to); err != nil {
		return err
	}
	source, err := openTree(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := openTree(to)
	if err != nil {
		return err
	}
	defer target.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(source.WriteTar("/", w), w.Close()) }()
	err = target.ReadTar("/", r)
	return errors.Join(err, r.Close(), <-done)
}

func openTree(dir string) (*Files, error) {
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("volume: %w", err)
	}
	return &Files{root: root}, nil
}
