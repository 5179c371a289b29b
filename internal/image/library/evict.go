package library

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/layer"
	"github.com/crannog/crannog/internal/image/manifest"
	"github.com/crannog/crannog/internal/image/root"
)

// Sources of images that do not come from a registry. Such images are never removed to make room.
const (
	SourceFile  = "file"
	SourceBuild = "build"
)

// shortage is the cause of an error when the budget is too small.
type shortage struct{ missing int64 }

// Error implements error.
func (s *shortage) Error() string { return "the budget for images is used up" }

// withRoom does work that adds to the library, with the library's lock held. If the budget is
// exceeded, it first removes files that nothing needs. Then it removes unused images that can be
// pulled again, the least recently used first, and repeats the work. keep returns blobs that the
// work has stored and to which no name refers yet.
func (l *Library) withRoom(ctx context.Context, keep func() []v1.Hash, work func() error) error {
	for first := true; ; first = false {
		release, err := l.hold(ctx, false)
		if err != nil {
			return err
		}
		err = work()
		release()
		short, full := errors.AsType[*shortage](err)
		if !full {
			return err
		}
		freed, images, failed := l.evict(ctx, short.missing, keep())
		if failed != nil {
			return errors.Join(err, failed)
		}
		// Each iteration except the first removes an image, so the loop ends.
		if images == 0 && (!first || freed <= 0) {
			return err
		}
	}
}

// evict frees bytes, or fewer if nothing else may be removed. It also returns how many images it
// has removed. It waits for work in progress.
func (l *Library) evict(ctx context.Context, bytes int64, keep []v1.Hash) (freed int64, images int, err error) {
	release, err := l.hold(ctx, true)
	if err != nil {
		return 0, 0, err
	}
	defer release()
	done, err := l.collect(ctx, keep...)
	if freed = done.Bytes; err != nil || freed >= bytes {
		return freed, images, err
	}
	packed, err := l.dropPacked(ctx)
	if freed += packed; err != nil || freed >= bytes {
		return freed, images, err
	}
	candidates, err := l.candidates(ctx, keep)
	if err != nil {
		return freed, images, err
	}
	for _, c := range candidates {
		for _, name := range c.names {
			if _, err := l.names.remove(name); err != nil {
				return freed, images, err
			}
			l.o.Log.Info("removed an unused image to make room for another", "image", name, "last_used", c.used)
		}
		images++
		done, err := l.collect(ctx, keep...)
		if freed += done.Bytes; err != nil || freed >= bytes {
			return freed, images, err
		}
	}
	return freed, images, nil
}

// dropPacked removes the packed forms of all images that no sandbox uses. They only make starts
// faster, so they go before any image does.
func (l *Library) dropPacked(ctx context.Context) (freed int64, err error) {
	used, err := l.needed(ctx)
	if err != nil {
		return 0, err
	}
	roots, err := l.roots.List()
	if err != nil {
		return 0, err
	}
	for _, r := range roots {
		if used[r.Tree()] || time.Since(l.roots.Used(r)) < l.o.Grace {
			continue
		}
		n, err := l.roots.RemoveOldPacked(r, used, l.o.Grace)
		if freed += n; err != nil {
			return freed, err
		}
	}
	return freed, nil
}

// candidate is an image that may be removed.
type candidate struct {
	names []string
	used  time.Time
}

// candidates returns the images that may be removed, the least recently used first.
func (l *Library) candidates(ctx context.Context, keep []v1.Hash) ([]candidate, error) {
	entries, err := l.names.list()
	if err != nil {
		return nil, err
	}
	used, err := l.needed(ctx)
	if err != nil {
		return nil, err
	}
	pinned, err := l.pins()
	if err != nil {
		return nil, err
	}
	byImage := map[v1.Hash]*candidate{}
	var list []*candidate
	for _, e := range entries {
		c := byImage[e.Manifest]
		if c == nil {
			c = &candidate{}
			byImage[e.Manifest] = c
			list = append(list, c)
		}
		c.names = append(c.names, e.Name)
		last, may := l.idle(e, used)
		if !may || pinned[e.Manifest] || slices.Contains(keep, e.Manifest) {
			last = time.Time{}.AddDate(9000, 0, 0) // never old enough: one such name keeps the image
		}
		if last.After(c.used) {
			c.used = last
		}
	}
	var out []candidate
	for _, c := range list {
		if c.used.Before(time.Now().Add(-l.o.Grace)) {
			out = append(out, *c)
		}
	}
	slices.SortStableFunc(out, func(a, b candidate) int { return a.used.Compare(b.used) })
	return out, nil
}

// idle returns when an image was last used, and false if the image must not be removed.
func (l *Library) idle(e entry, used map[string]bool) (time.Time, bool) {
	if e.Source == SourceFile || e.Source == SourceBuild {
		return time.Time{}, false
	}
	img, err := manifest.Load(l.blobs, e.Manifest)
	if err != nil {
		return e.Added, isLost(err)
	}
	last := e.Added
	if r, ok := l.roots.Find(img.Manifest.Config.Digest); ok {
		if used[r.Tree()] {
			return time.Time{}, false
		}
		last = l.roots.Used(r)
	}
	return last, true
}

// needed returns the trees that sandboxes and snapshots need.
func (l *Library) needed(ctx context.Context) (map[string]bool, error) {
	if inUse := l.inUse.Load(); inUse != nil {
		return (*inUse)(ctx)
	}
	return map[string]bool{}, nil
}

// unpack unpacks an image. It returns a shortage if the budget has no room for it.
func (l *Library) unpack(ctx context.Context, img manifest.Image, report func(Progress)) (root.Root, error) {
	if img.Feature() {
		// All features have the same configuration, by whose digest trees are found.
		return root.Root{}, fault.New(fault.Unsupported, CodeFeature, "this is a feature of development containers, which has no programs to start").
			WithHint("name it in the features of a devcontainer.json, and use crannog dev")
	}
	if r, ok := l.roots.Find(img.Manifest.Config.Digest); ok {
		return r, l.pack(ctx, r) // the budget does not matter, so nothing is counted for each sandbox
	}
	limits := l.o.Limits
	left, err := l.remainingBytes()
	if err != nil {
		return root.Root{}, err
	}
	bounded := left < limits.Bytes
	if bounded {
		limits.Bytes = max(left, 0)
	}
	r, err := l.roots.Make(ctx, img, l.blobs, limits, func(done, total int64) {
		report(Progress{Stage: StageUnpack, Done: done, Total: total})
	})
	if bounded && fault.CodeOf(err) == layer.CodeTooLarge {
		// The missing amount is known only during the unpacking, so each iteration frees as much as
		// the image's layers take.
		return r, fault.Wrap(errors.Join(&shortage{missing: img.Bytes()}, err), fault.Exhausted, CodeBudget, "the image unpacks to more than is left for images").
			WithHint(budgetHint)
	}
	if err == nil {
		err = l.pack(ctx, r)
	}
	return r, err
}

// blockSize is the unit in which files occupy space.
const blockSize = 4096

// pack creates the packed form of a root if the budget has room for it. Without it, sandboxes start
// from the directory, which takes longer.
func (l *Library) pack(ctx context.Context, r root.Root) error {
	view := l.imageOf(r).View()
	if r.IsPacked(view) {
		return nil // as for each sandbox but the first
	}
	left, err := l.remainingBytes()
	if err != nil {
		return err
	}
	guest, err := os.Stat(l.o.Guest)
	if err != nil {
		return err
	}
	// Each file ends with a part of a block.
	if left < r.Bytes+guest.Size()+r.Entries*blockSize {
		return nil
	}
	return l.roots.Pack(ctx, r, view)
}
