package library

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/manifest"
	"github.com/crannog/crannog/internal/image/registry"
	"github.com/crannog/crannog/internal/image/root"
)

// defaultBudget is the disk space for images if the operator sets none. It is never more than half
// of the free space.
const defaultBudget = 50 << 30

// CodeBudget is the code of the error for an image that exceeds the budget.
const CodeBudget = registry.CodeBudget

// budgetHint is the hint of errors with CodeBudget.
const budgetHint = "unused images from registries were already removed; remove others with crannog image rm, or raise the setting image_budget"

// Pruned is what Prune has removed.
type Pruned struct {
	Blobs, Roots int
	Bytes        int64
}

// Prune removes blobs and trees that no name, sandbox or snapshot needs. It waits for pulls in
// progress.
func (l *Library) Prune(ctx context.Context) (Pruned, error) {
	release, err := l.hold(ctx, true)
	if err != nil {
		return Pruned{}, err
	}
	defer release()
	return l.collect(ctx)
}

// collect is Prune with the lock held. It also preserves the given blobs.
func (l *Library) collect(ctx context.Context, also ...v1.Hash) (Pruned, error) {
	needBlobs, needConfigs, err := l.referenced()
	if err != nil {
		return Pruned{}, err
	}
	for _, d := range also {
		needBlobs[d] = true
	}
	used, err := l.needed(ctx)
	if err != nil {
		return Pruned{}, err
	}
	var done Pruned
	var errs []error
	roots, err := l.roots.List()
	if err != nil {
		return done, err
	}
	if err := l.step("trees"); err != nil {
		return done, err
	}
	for _, r := range roots {
		if needConfigs[r.Config] || used[r.Tree()] || time.Since(l.roots.Used(r)) < l.o.Grace {
			freed, err := l.removeOldPacked(r, used)
			done.Bytes += freed
			errs = append(errs, err)
			continue
		}
		packed := r.PackedBytes()
		if err := l.roots.Remove(r); err != nil {
			errs = append(errs, err)
			continue
		}
		done.Roots++
		done.Bytes += r.Bytes + packed
	}
	if keep := l.keep.Load(); keep != nil {
		more, err := (*keep)()
		if err != nil {
			return done, errors.Join(append(errs, err)...)
		}
		maps.Copy(needBlobs, more)
	}
	existing, err := l.blobs.List()
	if err != nil {
		return done, errors.Join(append(errs, err)...)
	}
	if err := l.step("blobs"); err != nil {
		return done, err
	}
	for d, size := range existing {
		if needBlobs[d] {
			continue
		}
		if err := l.step("blob"); err != nil {
			return done, err
		}
		if err := l.blobs.Remove(d); err != nil {
			errs = append(errs, err)
			continue
		}
		done.Blobs++
		done.Bytes += size
	}
	return done, errors.Join(append(errs, l.sweep())...)
}

// removeOldPacked removes the packed forms of a root that sandboxes of earlier versions have used.
func (l *Library) removeOldPacked(r root.Root, used map[string]bool) (freed int64, err error) {
	needed := maps.Clone(used)
	if current := r.Packed(l.imageOf(r).View()); current != nil {
		needed[current.File] = true
	}
	return l.roots.RemoveOldPacked(r, needed, l.o.Grace)
}

// referenced returns the blobs and trees that names and templates need.
func (l *Library) referenced() (blobs, configs map[v1.Hash]bool, err error) {
	entries, err := l.names.list()
	if err != nil {
		return nil, nil, err
	}
	needed, err := l.pins()
	if err != nil {
		return nil, nil, err
	}
	digests := maps.Clone(needed)
	for _, e := range entries {
		digests[e.Manifest] = true
	}
	blobs, configs = map[v1.Hash]bool{}, map[v1.Hash]bool{}
	for d := range digests {
		img, err := manifest.Load(l.blobs, d)
		if isLost(err) {
			continue // the image cannot be used
		}
		if err != nil {
			return nil, nil, err
		}
		for _, d := range img.Blobs() {
			blobs[d] = true
		}
		configs[img.Manifest.Config.Digest] = true
	}
	return blobs, configs, nil
}

// usedBytes returns the disk space that images use.
func (l *Library) usedBytes() (bytes int64, err error) {
	blobs, err := l.blobs.List()
	if err != nil {
		return 0, err
	}
	for _, size := range blobs {
		bytes += size
	}
	roots, err := l.roots.List()
	if err != nil {
		return 0, err
	}
	for _, r := range roots {
		bytes += r.Bytes + r.PackedBytes()
	}
	return bytes, nil
}

// remainingBytes returns how many more bytes images may use.
func (l *Library) remainingBytes() (int64, error) {
	used, err := l.usedBytes()
	if err != nil {
		return 0, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(l.o.Dir, &disk); err != nil {
		return 0, err
	}
	free := int64(disk.Bavail) * disk.Bsize //nolint:gosec // a disk has fewer than 2^63 bytes
	if l.o.Budget == 0 {
		return min(defaultBudget-used, free/2), nil
	}
	return min(l.o.Budget-used, free), nil
}

// checkBudget returns an error for blobs that exceed the budget.
func (l *Library) checkBudget(bytes int64) error {
	left, err := l.remainingBytes()
	if err != nil {
		return err
	}
	if bytes <= left {
		return nil
	}
	return fault.Wrap(&shortage{missing: bytes - left}, fault.Exhausted, CodeBudget, fmt.Sprintf("the image has %d bytes to store, and %d are left for images", bytes, max(left, 0))).
		WithHint(budgetHint)
}
