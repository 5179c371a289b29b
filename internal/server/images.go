package server

import (
	"context"
	"path/filepath"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/hostfiles"
	"github.com/crannog/crannog/internal/state/snapshot"
)

// images adapts snapshot.Images to the types of package sandbox.
type images struct {
	*snapshot.Images
	// hostFiles are copies of host files to which saved memory refers.
	hostFiles *hostfiles.Store
}

// openImages opens the saved states of earlier processes.
func (d *Server) openImages() error {
	var declared [][]snapshot.Part
	for _, e := range d.options.Engines.All() {
		if c, ok := e.(engine.Checkpointer); ok {
			declared = append(declared, partsOf(c.Parts()))
		}
	}
	dir, err := snapshot.Open(filepath.Join(d.options.StateDir, "snapshots"), snapshot.Options{
		Budget: d.options.Settings.SnapshotBudget, Log: d.options.Log, Sum: d.store.SumOf, Declared: declared,
	})
	if err != nil {
		return err
	}
	d.images = &images{Images: dir}
	d.images.hostFiles, err = hostfiles.OpenStore(filepath.Join(d.options.StateDir, "host-files"))
	return err
}

// Begin implements sandbox.Images.
func (i *images) Begin(id string) (sandbox.Draft, error) {
	d, err := i.Images.Begin(id)
	if err != nil {
		return nil, err
	}
	return &draft{Draft: d}, nil
}

// Lease implements sandbox.Images.
func (i *images) Lease(ctx context.Context, id, sum string) (sandbox.Lease, error) {
	l, err := i.Images.Lease(ctx, id, sum)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Sizes implements sandbox.Images.
func (i *images) Sizes(ctx context.Context) (map[string]sandbox.ImageSize, error) {
	sizes, err := i.Images.Sizes(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]sandbox.ImageSize, len(sizes))
	for id, size := range sizes {
		out[id] = sandbox.ImageSize{Bytes: size.Bytes, Own: size.Own}
	}
	return out, nil
}

// partsOf converts an engine's parts to the types of package snapshot.
func partsOf(parts []engine.Part) []snapshot.Part {
	list := make([]snapshot.Part, len(parts))
	for i, p := range parts {
		list[i] = snapshot.Part{Name: p.Name, Kind: snapshot.Kind(p.Kind)}
	}
	return list
}

// draft adapts snapshot.Draft to the types of package sandbox.
type draft struct {
	*snapshot.Draft
	parts []snapshot.Part
}

// Declare implements sandbox.Draft.
func (d *draft) Declare(parts []engine.Part) { d.parts = partsOf(parts) }

// Commit implements sandbox.Draft.
func (d *draft) Commit(ctx context.Context, parent string) (sandbox.Image, error) {
	image, err := d.Draft.Commit(ctx, parent, d.parts)
	return sandbox.Image{ID: image.ID, Sum: image.Sum, Bytes: image.Bytes}, err
}
