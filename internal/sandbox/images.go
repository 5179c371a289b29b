package sandbox

import (
	"context"

	"github.com/crannog/crannog/internal/engine"
)

// Images stores saved states of sandboxes on disk. It does not know what refers to them.
type Images interface {
	// Begin creates a draft of a new image. If the disk budget is used up, the error is of kind
	// Exhausted.
	Begin(id string) (Draft, error)
	// Lease opens an image whose digest the caller knows.
	Lease(ctx context.Context, id, sum string) (Lease, error)
	// Remove removes an image. It succeeds for an unknown one.
	Remove(ctx context.Context, id string) error
	// Sizes lists all images.
	Sizes(ctx context.Context) (map[string]ImageSize, error)
	// Prune removes images for which keep returns false, and drafts of dead processes.
	Prune(ctx context.Context, keep func(id string) bool) (freed int64, err error)
	// Settle stores data that images of one lineage have in common only once.
	Settle(ctx context.Context) (freed int64, err error)
	// Persist makes the images that this process has committed survive a reboot, and a limited
	// number of those of killed processes. Settle does so too, later.
	Persist(ctx context.Context) error
}

// Draft is an image that is being written.
type Draft interface {
	// Dir is an empty directory to write into.
	Dir() string
	// Declare sets the parts of which the image will consist.
	Declare(parts []engine.Part)
	// Commit makes the draft an image of the declared parts, which survives a crash. parent is an
	// image that it is likely to share data with, or "". After an error neither draft nor image is
	// left.
	Commit(ctx context.Context, parent string) (Image, error)
	// Abort removes the draft. After Commit it does nothing.
	Abort() error
}

// Lease is an image in use: it is neither changed nor removed.
type Lease interface {
	Dir() string
	// Verify checks what was not checked when it was leased.
	Verify(ctx context.Context) error
	Release() error
}

// Image describes a stored image.
type Image struct {
	ID, Sum string
	Bytes   int64
}

// ImageSize is how much disk an image takes, and how much removing it would free.
type ImageSize struct{ Bytes, Own int64 }
