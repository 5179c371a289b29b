// Package root owns the directory trees from which sandboxes of images start. An image is unpacked
// once, completely or not at all, and all its sandboxes share the tree.
package root

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/durable"
	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/layer"
	"github.com/crannog/crannog/internal/image/manifest"
)

// Root is an unpacked image.
type Root struct {
	Config  v1.Hash // digest of the image's configuration, which identifies its content
	Image   v1.Hash // digest of a manifest with that configuration
	Bytes   int64
	Entries int64
	Skipped int64 // devices and other entries that were left out
	User    string
	Dir     string // working directory
	Env     map[string]string
	// HasOwners is set if there is a table of owners and set-id bits.
	HasOwners bool
	Made      time.Time

	home string // directory in the store
}

// Tree returns the directory that sandboxes see.
func (r Root) Tree() string { return filepath.Join(r.home, "tree") }

// Owners returns the file with the table of owners and set-id bits (internal/filetree/fileowners),
// or "" for a tree of an earlier version.
func (r Root) Owners() string {
	if !r.HasOwners {
		return ""
	}
	return filepath.Join(r.home, ownersName)
}

// Store is a directory of roots.
type Store struct {
	dir    string
	making singleflight.Group
	// step is called before each step of Make, for tests in which the process dies.
	step func(name string) error
}

// Trace sets the function that is called before each step of Make and Remove, for tests in which
// the process dies.
func (s *Store) Trace(step func(name string) error) { s.step = step }

// Names of the store's directories and files.
const (
	draftPrefix = ".making-"
	gonePrefix  = ".gone-"
	metaName    = "root.json"
	ownersName  = "owners.json"
)

// Open opens a store, and creates its directory if it does not exist.
func Open(dir string) (*Store, error) {
	// No other user of the host may reach the files of images, which may have any owner and mode.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("roots of images: %w", err)
	}
	return &Store{dir: dir}, nil
}

// home returns the directory of the root with a configuration.
func (s *Store) home(config v1.Hash) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s-%d", config.Hex, furnishVersion))
}

// Find returns the root of an unpacked image.
func (s *Store) Find(config v1.Hash) (Root, bool) {
	r, err := read(s.home(config))
	return r, err == nil
}

// read reads the description of a root.
func read(home string) (Root, error) {
	data, err := os.ReadFile(filepath.Join(home, metaName))
	if err != nil {
		return Root{}, err
	}
	var r Root
	if err := json.Unmarshal(data, &r); err != nil {
		return Root{}, fmt.Errorf("root of an image: %w", err)
	}
	r.home = home
	return r, nil
}

// Make unpacks an image unless it is unpacked already. report is called with the number of the
// layers' bytes that are done.
func (s *Store) Make(ctx context.Context, img manifest.Image, blobs *blob.Store, limits layer.Limits, report func(done, total int64)) (Root, error) {
	config := img.Manifest.Config.Digest
	if r, ok := s.Find(config); ok {
		return r, nil
	}
	made := s.making.DoChan(config.String(), func() (any, error) {
		// Other callers wait for the same unpacking, so it continues if this caller leaves.
		return s.unpack(context.WithoutCancel(ctx), img, blobs, limits, report)
	})
	select {
	case <-ctx.Done():
		return Root{}, context.Cause(ctx)
	case result := <-made:
		if result.Err != nil {
			return Root{}, result.Err
		}
		r, ok := result.Val.(Root)
		if !ok {
			return Root{}, errors.New("root of an image: unexpected type")
		}
		return r, nil
	}
}

// unpack unpacks an image into a draft and renames the draft.
func (s *Store) unpack(ctx context.Context, img manifest.Image, blobs *blob.Store, limits layer.Limits, report func(done, total int64)) (_ Root, err error) {
	draft, err := os.MkdirTemp(s.dir, draftPrefix)
	if err != nil {
		return Root{}, err
	}
	defer func() {
		if gone := layer.RemoveTree(draft); err == nil && gone != nil {
			err = gone
		}
	}()
	// While the draft is locked, no other process removes it as a leftover.
	lock, err := os.Open(draft)
	if err != nil {
		return Root{}, err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return Root{}, err
	}
	r := describe(img)
	owners, err := s.fill(ctx, filepath.Join(draft, "tree"), img, blobs, limits, report, &r)
	if err != nil {
		return Root{}, err
	}
	r.HasOwners = true
	data, err := json.Marshal(r)
	if err != nil {
		return Root{}, err
	}
	final := s.home(r.Config)
	r.home = final
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"owners", func() error { return durable.Replace(filepath.Join(draft, ownersName), owners, durable.Options{}) }},
		{"describe", func() error { return durable.Replace(filepath.Join(draft, metaName), data, durable.Options{}) }},
		{"sync", func() error { return unix.Syncfs(int(lock.Fd())) }},
		{"name", func() error { return os.Rename(draft, final) }},
		{"sync directory", func() error { return durable.SyncDir(s.dir) }},
	} {
		if s.step != nil {
			if err := s.step(step.name); err != nil {
				return Root{}, err
			}
		}
		err := step.do()
		if step.name == "name" && (errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrExist)) {
			return read(final) // another process was faster
		}
		if err != nil {
			return Root{}, fmt.Errorf("root of an image: %w", err)
		}
	}
	return r, nil
}

// describe returns the part of an image's configuration that sandboxes need.
func describe(img manifest.Image) Root {
	c := img.Config.Config
	r := Root{Config: img.Manifest.Config.Digest, Image: img.Digest, User: c.User, Dir: c.WorkingDir, Env: map[string]string{}, Made: time.Now().UTC().Round(0)}
	for _, e := range c.Env {
		name, value, ok := strings.Cut(e, "=")
		if ok && name != "" && !strings.ContainsAny(e, "\x00\n\r") {
			r.Env[name] = value
		}
	}
	return r
}

// fill unpacks the layers into a new directory, and returns the text of the table of owners.
func (s *Store) fill(ctx context.Context, dir string, img manifest.Image, blobs *blob.Store, limits layer.Limits, report func(done, total int64), r *Root) ([]byte, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // regardless of the umask
		return nil, err
	}
	tree, err := layer.Open(dir, limits)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	progress := &counter{report: report}
	for _, l := range img.Manifest.Layers {
		progress.total += l.Size
	}
	for i, l := range img.Manifest.Layers {
		if s.step != nil {
			if err := s.step(fmt.Sprintf("layer %d", i)); err != nil {
				return nil, err
			}
		}
		if err := apply(ctx, tree, l.Digest, img.Config.RootFS.DiffIDs[i], blobs, progress); err != nil {
			return nil, err
		}
	}
	if err := furnish(tree, r.Dir); err != nil {
		return nil, fmt.Errorf("prepare the image: %w", err)
	}
	owners, err := tree.Owners()
	if err != nil {
		return nil, err
	}
	if err := tree.Finish(); err != nil {
		return nil, err
	}
	n := tree.Counts()
	r.Bytes, r.Entries, r.Skipped = n.Bytes, n.Entries, n.Skipped
	return owners.Text()
}

// apply unpacks one layer and compares the digest of its content with the image's configuration, to
// detect a layer of another image.
func apply(ctx context.Context, tree *layer.Tree, digest, content v1.Hash, blobs *blob.Store, progress *counter) error {
	f, err := blobs.Open(digest)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := layer.Uncompress(io.TeeReader(f, progress))
	if err != nil {
		return fault.Wrap(err, fault.Invalid, layer.CodeRefused, "a layer cannot be uncompressed")
	}
	defer plain.Close()
	sum := sha256.New()
	if err := tree.Apply(ctx, io.TeeReader(plain, sum)); err != nil {
		return err
	}
	// The blob is read to its end, because its digest is compared there.
	if _, err := io.Copy(io.Discard, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != content.Hex {
		return fault.Newf(fault.Invalid, blob.CodeWrong, "a layer unpacks to sha256:%s instead of %s, which the image's configuration names", got, content)
	}
	return nil
}

// counter counts compressed bytes that were read.
type counter struct {
	done, total int64
	report      func(done, total int64)
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	c.done += int64(len(p))
	c.report(c.done, c.total)
	return len(p), nil
}

// Touch records that a root is about to be used. Used returns this time.
func (s *Store) Touch(r Root) error {
	now := time.Now()
	return os.Chtimes(filepath.Join(r.home, metaName), now, now)
}

// Used returns when a root was created or last touched.
func (s *Store) Used(r Root) time.Time {
	info, err := os.Stat(filepath.Join(r.home, metaName))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// List returns all roots, including those of an earlier version.
func (s *Store) List() ([]Root, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("roots of images: %w", err)
	}
	var list []Root
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		r, err := read(filepath.Join(s.dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// Remove removes a root. It renames the root first, so that a crash leaves nothing that looks
// complete.
func (s *Store) Remove(r Root) error {
	gone, err := os.MkdirTemp(s.dir, gonePrefix)
	if err != nil {
		return err
	}
	if s.step != nil {
		if err := s.step("unname"); err != nil {
			return err
		}
	}
	if err := os.Rename(r.home, filepath.Join(gone, "root")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if s.step != nil {
		if err := s.step("remove"); err != nil {
			return err
		}
	}
	return layer.RemoveTree(gone)
}

// Sweep removes drafts of crashed processes that are older than olderThan. A newer draft may belong
// to a process that has not locked it yet.
func (s *Store) Sweep(olderThan time.Duration) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("roots of images: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), draftPrefix) || strings.HasPrefix(e.Name(), gonePrefix) {
			errs = append(errs, sweepOne(filepath.Join(s.dir, e.Name()), olderThan))
		}
	}
	return errors.Join(errs...)
}

// sweepOne removes one draft, unless a process has locked it.
func sweepOne(dir string, olderThan time.Duration) error {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || time.Since(info.ModTime()) < olderThan {
		return err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil // another process is unpacking it
	}
	if err != nil {
		return err
	}
	return layer.RemoveTree(dir)
}

// TemplateID returns the permanent ID of an image as a template: 20 characters of a-z and 0-9.
func TemplateID(config v1.Hash) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	sum := sha256.Sum256([]byte("crannog image " + config.String()))
	var id bytes.Buffer
	for _, b := range sum[:20] {
		id.WriteByte(alphabet[int(b)%len(alphabet)])
	}
	return id.String()
}
