// Package snapshot stores the saved states of sandboxes, called images, on disk. It takes over the
// files that an engine has written, detects changes of them, lets images of one lineage share their
// pages, and stays within a budget. Its callers know the purpose, the owner and the names of an
// image.
//
// # Layout
//
//	images/ID/manifest        the list of the image's files, with a MAC
//	images/ID/NAME            the parts, under the names that their writer chose:
//	                          small files, and one file of pages or one blob. A file
//	                          of pages that can be rebuilt from packs may be removed
//	images/ID/index           the positions of the pages in packs
//	packs/PACK.pages, .sums   pages, stored when the first image with them was packed
//	drafts/…                  unfinished files; the writing process locks their
//	                          directory, which is removed after that process ended
//
// # Life of an image
//
// Commit is short: it hashes the small files, stores the identity of the big file (inode, size,
// times) and renames the directory. Deduplicate later completes the image: it reads the big file,
// writes its hash into the manifest, syncs all files and moves pages into packs. A complete image
// is durable. A process that ends earlier calls Persist, which does the same without packs.
//
// Until an image is complete, every change through the file system is detected, because it alters
// the change time, which no program can set. A change below the file system (by a bad disk, or a
// process that writes to the device) is not detected in these seconds. An image that was not
// complete when the machine went down is rejected, because it is unknown which of its bytes reached
// the disk.
//
// The key of the manifest's MAC is the image's Sum. An attacker who can write to this directory but
// does not know the Sum cannot create an image, change one, or exchange one for another.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	imagesDir = "images"
	packsDir  = "packs"
	draftsDir = "drafts"
	lockName  = "lock"
)

// defaultBudget is enough for some hundred sandboxes of average size.
const defaultBudget = 20 << 30

// Options configure Open.
type Options struct {
	// Budget is the disk space for images in bytes. Zero means 20 GiB or a fifth of the free space,
	// whichever is less. It is never unlimited.
	Budget int64
	// Log may be nil.
	Log *slog.Logger
	// Sum returns the Sum of an image, or "" if unknown. Deduplicate needs it for images of a
	// process that ended between Commit and Deduplicate. If it is nil, such images are completed
	// after their first Lease.
	Sum func(ctx context.Context, id string) (string, error)
	// Declared has the declarations of parts by the writers of images. Manifests of the first
	// format have no names of parts.
	Declared [][]Part

	now  func() time.Time
	step func(name string)
}

// Images is a directory of images. Several processes may have it open. It is safe for concurrent
// use.
type Images struct {
	reader
	dir   string
	root  *os.Root
	log   *slog.Logger
	sum   func(ctx context.Context, id string) (string, error)
	now   func() time.Time
	step  func(name string)            // called before each change of the disk
	read  func(*os.File) (bool, error) // reports whether another process has a file open
	known *hashCache
	space space

	clearing      sync.Mutex // held while removing directories
	deduplicating deduplicationLock
	notes         notes
}

// space is the disk space that images use, and may use.
type space struct {
	measuring sync.Mutex // held by the first measurement
	measured  bool
	budget    int64
	used      atomic.Int64 // bytes of images and packs, at the last measurement

	roomMu  sync.Mutex // held while making room
	tally   sync.Mutex // held while the disk and the counters change together
	claimed int64      // bytes that were claimed and are not in used yet
}

// deduplicationLock is held by one Deduplicate or Prune at a time.
type deduplicationLock struct {
	sync.Mutex
	collected bool // this process has looked for unneeded packs
}

// notes are what this process knows about single images.
type notes struct {
	mu       sync.Mutex
	sums     map[string]string        // keys of images that this process can complete
	building map[string]chan struct{} // images whose pages are being assembled
	spoiled  map[string]bool          // images whose flat copy was changed
	warned   map[string]bool          // images whose damage was logged
	gone     []gone                   // directories to remove
	current  string                   // the image that is being completed
	stop     context.CancelFunc       // interrupts completion
}

// Open opens a directory of images, creates it if necessary, and removes drafts of ended processes.
func Open(dir string, o Options) (*Images, error) {
	if o.Budget < 0 {
		return nil, fmt.Errorf("open images: a budget of %d bytes", o.Budget)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open images: %w", err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("open images: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open images: %w", err)
	}
	s := &Images{
		dir: dir, root: root, log: o.Log, sum: o.Sum, now: o.now, step: o.step, read: openByOthers,
		reader: reader{boot: strings.TrimSpace(string(boot)), declared: o.Declared}, known: newHashCache(),
		space: space{budget: o.Budget},
		notes: notes{sums: map[string]string{}, building: map[string]chan struct{}{}, spoiled: map[string]bool{}, warned: map[string]bool{}},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.step == nil {
		s.step = func(string) {}
	}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("open images: %w", err), root.Close())
	}
	return s, nil
}

func (s *Images) prepare() error {
	// Other users who may enter the directory could read the memory of sandboxes.
	if err := s.root.Chmod(".", 0o700); err != nil {
		return err
	}
	for _, d := range []string{imagesDir, packsDir, draftsDir} {
		if err := s.root.Mkdir(d, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return s.sweep()
}

// ready measures the disk space on first use. Open does not, because most commands that open images
// do not need it.
func (s *Images) ready() error {
	s.space.measuring.Lock()
	defer s.space.measuring.Unlock()
	if s.space.measured {
		return nil
	}
	used, err := s.measure()
	if err != nil {
		return err
	}
	if s.space.budget == 0 {
		free, err := s.free()
		if err != nil {
			return err
		}
		// Space that images use already counts as available.
		s.space.budget = max(min(defaultBudget, (free+used)/5), 1)
	}
	s.space.measured = true
	return nil
}

// Close closes the directory. Leases and drafts must have ended.
func (s *Images) Close() error {
	s.drain()
	return s.root.Close()
}

// free returns the free disk space.
func (s *Images) free() (int64, error) {
	d, err := s.root.Open(".")
	if err != nil {
		return 0, err
	}
	defer d.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.Fd()), &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", s.dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}
