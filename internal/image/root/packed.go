package root

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/rootimage"
	"github.com/crannog/crannog/internal/host/durable"
)

// A root has, besides its directory, one EROFS file for each version of the guest with which
// sandboxes were started. Kernels of sandboxes mount the file without a server of files.

// packedSuffix is the end of the names of packed roots. The rest is the name of the guest's file,
// which identifies its content.
const packedSuffix = ".erofs"

// unpackable is the content of the file if there can be no packed root, because this
// user cannot read all files of the directory: some have no permission even for their owner.
const unpackable = "some files of this image cannot be read without root\n"

// Packed returns the packed form of a root's view. It returns nil if there is none.
func (r Root) Packed(view engine.HostView) *engine.Packed {
	file := r.packedFile(view)
	info, err := os.Stat(file)
	if err != nil || info.Size() <= int64(len(unpackable)) {
		return nil
	}
	return &engine.Packed{File: file, Owners: view.Owners, Binds: view.Binds}
}

// IsPacked reports whether Pack has nothing to do for a view.
func (r Root) IsPacked(view engine.HostView) bool {
	_, err := os.Lstat(r.packedFile(view))
	return err == nil
}

// packedFile returns the path of the packed form of a view.
func (r Root) packedFile(view engine.HostView) string {
	var name strings.Builder
	name.WriteString("root")
	for _, b := range view.Binds {
		name.WriteString("+" + filepath.Base(b.Source))
	}
	return filepath.Join(r.home, name.String()+packedSuffix)
}

// Pack creates the packed form of a root's view unless it exists.
func (s *Store) Pack(ctx context.Context, r Root, view engine.HostView) error {
	file := r.packedFile(view)
	if r.IsPacked(view) {
		return nil
	}
	made := s.making.DoChan(file, func() (any, error) {
		// Other callers may wait for the same file, so the end of one request does not stop this.
		return nil, s.pack(context.WithoutCancel(ctx), file, view)
	})
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case result := <-made:
		return result.Err
	}
}

// pack writes a packed root. A crash leaves a draft, which RemoveOldPacked removes.
func (s *Store) pack(ctx context.Context, file string, view engine.HostView) error {
	if s.step != nil {
		if err := s.step("pack"); err != nil {
			return err
		}
	}
	err := rootimage.WriteView(ctx, file, view)
	if errors.Is(err, fs.ErrPermission) {
		return durable.Replace(file, []byte(unpackable), durable.Options{})
	}
	if err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(file))
}

// PackedBytes returns the disk space of a root's packed forms.
func (r Root) PackedBytes() (bytes int64) {
	for _, info := range r.packed() {
		bytes += info.Size()
	}
	return bytes
}

// packed lists the packed forms of a root, and drafts of some.
func (r Root) packed() map[string]fs.FileInfo {
	entries, err := os.ReadDir(r.home)
	if err != nil {
		return nil // the root was removed
	}
	files := map[string]fs.FileInfo{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), packedSuffix) && !rootimage.IsDraft(e.Name()) {
			continue
		}
		if info, err := e.Info(); err == nil {
			files[filepath.Join(r.home, e.Name())] = info
		}
	}
	return files
}

// RemoveOldPacked removes the packed forms of a root that are not needed, and those of interrupted
// calls of Pack, if they are older than olderThan. It returns how many bytes it freed.
func (s *Store) RemoveOldPacked(r Root, needed map[string]bool, olderThan time.Duration) (freed int64, err error) {
	var errs []error
	for file, info := range r.packed() {
		if needed[file] || time.Since(info.ModTime()) < olderThan {
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, err)
			continue
		}
		freed += info.Size()
	}
	return freed, errors.Join(errs...)
}
