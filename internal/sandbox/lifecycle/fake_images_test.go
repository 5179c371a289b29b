package lifecycle_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// fakeImages stores images as plain directories, and fails on demand. When it is opened again, it
// removes drafts, as if their process had died.
type fakeImages struct {
	dir string

	mu          sync.Mutex
	budget      error // of Begin
	limit       int   // greatest number of images, if not zero
	commit      error // of Commit
	leased      int
	unpersisted map[string]bool // images that a reboot would lose
}

func newFakeImages(dir string) (*fakeImages, error) {
	a := &fakeImages{dir: dir, unpersisted: make(map[string]bool)}
	return a, errors.Join(os.RemoveAll(filepath.Join(dir, "drafts")),
		os.MkdirAll(filepath.Join(dir, "drafts"), 0o700), os.MkdirAll(filepath.Join(dir, "images"), 0o700))
}

func (a *fakeImages) image(id string) string { return filepath.Join(a.dir, "images", id) }

func (a *fakeImages) Begin(id string) (sandbox.Draft, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.budget != nil {
		return nil, a.budget
	}
	if list, _ := os.ReadDir(filepath.Join(a.dir, "images")); a.limit > 0 && len(list) >= a.limit {
		return nil, fault.New(fault.Exhausted, "snapshot_budget", "full")
	}
	d := &fakeDraft{a: a, id: id, dir: filepath.Join(a.dir, "drafts", id)}
	return d, os.Mkdir(d.dir, 0o700)
}

type fakeDraft struct {
	a       *fakeImages
	id, dir string
	parts   []engine.Part
	ended   bool
}

func (d *fakeDraft) Declare(parts []engine.Part) { d.parts = parts }

func (d *fakeDraft) Dir() string { return d.dir }

func (d *fakeDraft) Abort() error {
	if d.ended {
		return nil
	}
	d.ended = true
	return os.RemoveAll(d.dir)
}

func (d *fakeDraft) Commit(_ context.Context, parent string) (sandbox.Image, error) {
	d.a.mu.Lock()
	err := d.a.commit
	d.a.mu.Unlock()
	if err != nil {
		return sandbox.Image{}, errors.Join(err, d.Abort())
	}
	sum, size, err := sumOf(d.dir)
	if entries, _ := os.ReadDir(d.dir); len(entries) != len(d.parts) || len(entries) == 0 {
		err = fmt.Errorf("%v are not the parts %v", entries, d.parts)
	}
	if err == nil {
		err = os.Rename(d.dir, d.a.image(d.id))
	}
	d.ended = true
	d.a.mu.Lock()
	d.a.unpersisted[d.id] = true
	d.a.mu.Unlock()
	return sandbox.Image{ID: d.id, Sum: sum, Bytes: size}, err
}

func sumOf(dir string) (string, int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", 0, err
	}
	h, size := sha256.New(), int64(0)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", 0, err
		}
		size += int64(len(data))
		h.Write(data)
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

type fakeLease struct {
	a   *fakeImages
	id  string
	sum string
}

func (a *fakeImages) Lease(_ context.Context, id, sum string) (sandbox.Lease, error) {
	if _, err := os.Stat(a.image(id)); err != nil {
		return nil, fault.New(fault.NotFound, "image_not_found", "no image "+id)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leased++
	return &fakeLease{a, id, sum}, nil
}

func (l *fakeLease) Dir() string { return l.a.image(l.id) }

func (l *fakeLease) Verify(context.Context) error {
	if sum, _, err := sumOf(l.Dir()); err != nil || sum != l.sum {
		return errors.Join(fault.New(fault.Invalid, "snapshot_damaged", "the image was changed"), err)
	}
	return nil
}

func (l *fakeLease) Release() error {
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	l.a.leased--
	return nil
}

func (a *fakeImages) Remove(_ context.Context, id string) error { return os.RemoveAll(a.image(id)) }

func (a *fakeImages) Sizes(context.Context) (map[string]sandbox.ImageSize, error) {
	entries, err := os.ReadDir(filepath.Join(a.dir, "images"))
	out := make(map[string]sandbox.ImageSize)
	for _, e := range entries {
		_, size, _ := sumOf(a.image(e.Name()))
		out[e.Name()] = sandbox.ImageSize{Bytes: size, Own: size / 2}
	}
	return out, err
}

func (a *fakeImages) Prune(ctx context.Context, keep func(string) bool) (freed int64, err error) {
	sizes, err := a.Sizes(ctx)
	for id, size := range sizes {
		if !keep(id) {
			freed += size.Bytes
			err = errors.Join(err, a.Remove(ctx, id))
		}
	}
	return freed, err
}

func (a *fakeImages) Deduplicate(ctx context.Context) (int64, error) { return 0, a.Persist(ctx) }

func (a *fakeImages) Persist(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	clear(a.unpersisted)
	return nil
}

// counts returns the numbers of images and drafts, and of those in use.
func (a *fakeImages) counts() (images, drafts, leased int) {
	list, _ := os.ReadDir(filepath.Join(a.dir, "images"))
	started, _ := os.ReadDir(filepath.Join(a.dir, "drafts"))
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(list), len(started), a.leased
}
