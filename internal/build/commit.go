package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/crannog/crannog/internal/build/layertar"
	"github.com/crannog/crannog/internal/build/stagetree"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/image/manifest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// Committed provides sandboxes and their changes.
type Committed interface {
	// Get finds a sandbox of a caller.
	Get(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Sandbox, error)
	// Tree returns the directory from which a sandbox started, and the paths in the sandbox at
	// which other files are mounted.
	Tree(ctx context.Context, id string) (dir string, shown []string, err error)
	// Archive writes the changes of a running sandbox, as engines do.
	Archive(ctx context.Context, sb sandbox.Sandbox, w io.Writer) error
}

// CommitOptions are the dependencies of Commits. Dir is for unnamed files.
type CommitOptions struct {
	Dir       string
	Library   *library.Library
	Sandboxes Committed
	Audit     *auditlog.Log
}

// Commits creates images from the files of sandboxes. It is safe for concurrent use.
type Commits struct{ o CommitOptions }

// NewCommits returns Commits.
func NewCommits(o CommitOptions) *Commits { return &Commits{o} }

// Commit creates an image from a running sandbox: the image from which it started, and a layer of
// its changes. Mounted files of the host are not included.
func (c *Commits) Commit(ctx context.Context, caller sandbox.Principal, ref, name string) (library.Image, error) {
	if err := checkName(caller, name); err != nil {
		return library.Image{}, err
	}
	sb, err := c.o.Sandboxes.Get(ctx, caller, ref)
	if err != nil {
		return library.Image{}, err
	}
	ctx, action := c.o.Audit.Begin(ctx, caller.Actor(), "image.commit", name)
	auditlog.About(ctx, sb.ID)
	img, err := c.commit(ctx, sb, name)
	return img, action.Finish(context.WithoutCancel(ctx), err)
}

// commit creates the image, without an audit entry.
func (c *Commits) commit(ctx context.Context, sb sandbox.Sandbox, name string) (library.Image, error) {
	if sb.State != sandbox.Running {
		return library.Image{}, fault.Newf(fault.Conflict, "sandbox_not_running", "the sandbox is %s, and only the files of a running one can become an image", sb.State).
			WithHint("resume it first: crannog resume " + sb.ID)
	}
	if sb.ImageDigest == "" {
		return library.Image{}, fault.New(fault.Unsupported, "commit_without_image", "the sandbox uses the programs of this machine, which belong to no image").
			WithHint("start it from an image: crannog run --image IMAGE")
	}
	// Blobs that no name refers to yet must not be removed.
	release, err := c.o.Library.Hold(ctx)
	if err != nil {
		return library.Image{}, err
	}
	defer release()
	digest, err := v1.NewHash(sb.ImageDigest)
	if err != nil {
		return library.Image{}, err
	}
	if exists, err := c.o.Library.Has(digest); err != nil || !exists {
		return library.Image{}, errors.Join(err, sandbox.ImageMissing(sb.ImageDigest))
	}
	base, err := manifest.Load(c.o.Library.Blobs(), digest)
	if err != nil {
		return library.Image{}, err
	}
	config, layers := base.Config.DeepCopy(), slices.Clone(base.Manifest.Layers)
	created := time.Now().UTC().Truncate(time.Second)
	config.Created = v1.Time{Time: created}
	layer, changed, err := c.layer(ctx, sb)
	if err != nil {
		return library.Image{}, err
	}
	history := v1.History{Created: config.Created, CreatedBy: "crannog commit " + sb.ID, EmptyLayer: !changed}
	if changed {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, layer.DiffID)
		layers = append(layers, v1.Descriptor{MediaType: types.OCILayer, Digest: layer.Digest, Size: layer.Size})
	}
	config.History = append(config.History, history)
	return c.o.Library.AddBuilt(ctx, name, config, layers, func(library.Progress) {})
}

// layer stores the changes of a sandbox, and reports whether there are any.
func (c *Commits) layer(ctx context.Context, sb sandbox.Sandbox) (_ layertar.Layer, changed bool, err error) {
	dir, shown, err := c.o.Sandboxes.Tree(ctx, sb.ID)
	if err != nil {
		return layertar.Layer{}, false, err
	}
	f, err := os.CreateTemp(c.o.Dir, "commit-")
	if err != nil {
		return layertar.Layer{}, false, err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return layertar.Layer{}, false, err
	}
	if err := c.o.Sandboxes.Archive(ctx, sb, f); err != nil {
		return layertar.Layer{}, false, err
	}
	list, err := stagetree.ReadChanges(f)
	if err != nil {
		return layertar.Layer{}, false, fmt.Errorf("read the changes of the sandbox: %w", err)
	}
	w, err := layertar.New(c.o.Dir, time.Time{})
	if err != nil {
		return layertar.Layer{}, false, err
	}
	defer w.Close()
	for i := range shown {
		shown[i] = strings.TrimPrefix(shown[i], "/")
	}
	if err := list.Write(w, stagetree.Unpacked(dir), shown); err != nil {
		return layertar.Layer{}, false, err
	}
	if w.Entries == 0 {
		return layertar.Layer{}, false, nil
	}
	layer, err := w.Store(ctx, c.o.Library.Blobs())
	return layer, true, err
}
