// Package library owns the images of this machine: their names, their blobs and the trees that are
// unpacked from them, and the rules for removing any of these.
package library

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/layer"
	"github.com/crannog/crannog/internal/image/manifest"
	"github.com/crannog/crannog/internal/image/registry"
	"github.com/crannog/crannog/internal/image/root"
)

// Options configure where and how images are stored. A zero field stands for the default.
type Options struct {
	Dir string
	// Guest is the host path of the program that runs as PID 1 in a sandbox.
	Guest string
	// Registry configures the client for registries. Its Reserve is set by the library.
	Registry registry.Options
	// Budget limits the disk space for images.
	Budget int64
	// Limits limit one image.
	Limits layer.Limits
	// Grace is how long a tree is preserved after its last use, so that the tree of a sandbox that
	// is being created is not removed.
	Grace time.Duration
	// Step is called before each step that changes the disk, for tests in which the process dies.
	// If it returns an error, the work ends.
	Step func(name string) error
	Log  *slog.Logger
}

// step calls Options.Step.
func (l *Library) step(name string) error {
	if l.o.Step == nil {
		return nil
	}
	return l.o.Step(name)
}

// Library holds the images of one state directory.
type Library struct {
	o        Options
	blobs    *blob.Store
	roots    *root.Store
	names    *names
	registry *registry.Client
	inUse    atomic.Pointer[InUse]
	keep     atomic.Pointer[func() (map[v1.Hash]bool, error)]
	pinned   atomic.Pointer[func() (map[v1.Hash]bool, error)]
}

// InUse returns the paths on this host that sandboxes and snapshots need.
type InUse func(ctx context.Context) (map[string]bool, error)

// Open opens a library, and removes files that crashes have left.
func Open(o Options) (*Library, error) {
	if o.Limits == (layer.Limits{}) {
		o.Limits = layer.DefaultLimits
	}
	if o.Grace == 0 {
		o.Grace = 10 * time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Library{o: o}
	var err error
	if l.blobs, err = blob.Open(filepath.Join(o.Dir, "blobs")); err != nil {
		return nil, err
	}
	if l.roots, err = root.Open(filepath.Join(o.Dir, "roots")); err != nil {
		return nil, err
	}
	if l.names, err = openNames(filepath.Join(o.Dir, "names")); err != nil {
		return nil, err
	}
	if o.Step != nil {
		l.blobs.Trace(func(name string) error { return o.Step("blob: " + name) })
		l.roots.Trace(func(name string) error { return o.Step("tree: " + name) })
	}
	l.blobs.Limit(l.checkBudget)
	o.Registry.Reserve, o.Registry.Log = l.checkBudget, o.Log
	l.registry = registry.New(o.Registry)
	return l, l.sweep()
}

// Drafts are preserved for some time after a crash, because a pull can continue them.
const (
	keepDrafts = 24 * time.Hour
	keepRoots  = time.Minute
)

// sweep removes old drafts of blobs and trees.
func (l *Library) sweep() error {
	_, err := l.blobs.Sweep(keepDrafts)
	return errors.Join(err, l.roots.Sweep(keepRoots))
}

// Protect sets a function that returns the paths that sandboxes need. The library calls it before
// it removes a tree.
func (l *Library) Protect(inUse InUse) { l.inUse.Store(&inUse) }

// hold takes the library's lock, which processes share: several may add images at once, but only
// one may remove unreferenced data.
func (l *Library) hold(ctx context.Context, exclusive bool) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(l.o.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("images: %w", err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-retry.C:
		}
	}
}

// Stages of the work that Progress reports.
const (
	StagePull   = "pull"
	StageUnpack = "unpack"
	StagePush   = "push"
)

// Progress is the progress of work on an image.
type Progress struct {
	Stage       string
	Digest      string // of the blob, for pull
	Done, Total int64
	Present     bool // the blob was already in the store
}

// Image is an image of the library.
type Image struct {
	Name     string
	Digest   v1.Hash // of the manifest
	Resolved v1.Hash // digest to which the name referred: the image, or an index
	Source   string  // the registry that sent it, "file" or "build"
	Added    time.Time
	Created  time.Time
	Platform string
	Bytes    int64 // of the blobs
	Config   v1.Config
	Layers   []v1.Descriptor
	// Root is the unpacked tree, or nil.
	Root *root.Root
	// Feature is the devcontainer-feature.json of a feature. It is set by Inspect.
	Feature []byte
}

// Pull pulls an image, gives it the name, and unpacks it if it is for this machine.
func (l *Library) Pull(ctx context.Context, ref, platform string, report func(Progress)) (Image, error) {
	named, err := registry.Parse(ref)
	if err != nil {
		return Image{}, err
	}
	p, err := manifest.ParsePlatform(platform)
	if err != nil {
		return Image{}, err
	}
	var img Image
	var pulled registry.Pulled
	err = l.withRoom(ctx, func() []v1.Hash { return l.blobsOf(pulled.Manifest) }, func() error {
		if pulled.Manifest == (v1.Hash{}) {
			if pulled, err = l.registry.Pull(ctx, named, p, l.blobs, func(e registry.Event) {
				report(Progress{Stage: StagePull, Digest: e.Digest.String(), Done: e.Done, Total: e.Total, Present: e.Present})
			}); err != nil {
				return err
			}
		}
		img, err = l.add(ctx, entry{Name: named.Name(), Manifest: pulled.Manifest, Resolved: pulled.Resolved, Source: pulled.Source}, report)
		return err
	})
	return img, err
}

// blobsOf lists the blobs of an image, if they are in the store.
func (l *Library) blobsOf(digest v1.Hash) []v1.Hash {
	img, err := manifest.Load(l.blobs, digest)
	if err != nil {
		return nil
	}
	return img.Blobs()
}

// add unpacks an image whose blobs are in the store and gives it its name.
func (l *Library) add(ctx context.Context, e entry, report func(Progress)) (Image, error) {
	img, err := manifest.Load(l.blobs, e.Manifest)
	if err != nil {
		return Image{}, err
	}
	if forThisMachine(img) && !img.Feature() {
		if _, err := l.unpack(ctx, img, report); err != nil {
			return Image{}, err
		}
	}
	e.Added = now()
	if err := l.step("name"); err != nil {
		return Image{}, err
	}
	if err := l.names.put(e); err != nil {
		return Image{}, err
	}
	return l.describe(e)
}

// now returns the current time in the form that is stored.
func now() time.Time { return time.Now().UTC().Round(0) }

// forThisMachine reports whether an image is for this machine.
func forThisMachine(img manifest.Image) bool {
	p := img.Config.Platform()
	return p == nil || p.Architecture == "" || p.Architecture == manifest.Host().Architecture
}

// describe returns the description of a named image.
func (l *Library) describe(e entry) (Image, error) {
	img, err := manifest.Load(l.blobs, e.Manifest)
	if err != nil {
		return Image{}, err
	}
	out := Image{
		Name: familiar(e.Name), Digest: e.Manifest, Resolved: e.Resolved, Source: e.Source, Added: e.Added,
		Created: img.Config.Created.Time, Bytes: img.Bytes(), Config: img.Config.Config, Layers: img.Manifest.Layers,
	}
	if p := img.Config.Platform(); p != nil {
		out.Platform = p.String()
	}
	if img.Feature() {
		return out, nil
	}
	if r, ok := l.roots.Find(img.Manifest.Config.Digest); ok {
		out.Root = &r
	}
	return out, nil
}

// familiar returns a name as people write it.
func familiar(full string) string {
	ref, err := name.ParseReference(full)
	if err != nil {
		return full
	}
	return registry.Familiar(ref)
}

// Unknown returns the error for an image that is not in the library.
func Unknown(ref string) error {
	return fault.Newf(fault.NotFound, "image_not_found", "there is no image %.200q on this machine", ref).WithHint("crannog image pull downloads it, crannog image ls lists the images on this machine")
}
