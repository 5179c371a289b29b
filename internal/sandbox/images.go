package sandbox

import (
	"context"

	"github.com/crannog/crannog/internal/engine"
)

// Images stores saved states of sandboxes on disk. It does not track references to them.
type Images interface {
	// Begin creates a draft of a new image. If the disk budget is used up, the error is of kind
	// Exhausted.
	Begin(id string) (Draft, error)
	// Lease opens an image by its digest.
	Lease(ctx context.Context, id, sum string) (Lease, error)
	// Remove removes an image. It succeeds for an unknown one.
	Remove(ctx context.Context, id string) error
	// Sizes lists all images.
	Sizes(ctx context.Context) (map[string]ImageSize, error)
	// Prune removes images for which keep returns false, and drafts of dead processes.
	Prune(ctx context.Context, keep func(id string) bool) (freed int64, err error)
	// Deduplicate deduplicates the data of related images.
	Deduplicate(ctx context.Context) (freed int64, err error)
	// Persist makes the images that this process has committed survive a reboot, and a limited
	// number of those of killed processes. Deduplicate also does this, later.
	Persist(ctx context.Context) error
}

// Draft is an image that is being written.
type Draft interface {
	// Dir is an empty directory to write into.
	Dir() string
	// Declare sets the names of the image's parts.
	Declare(parts []engine.Part)
	// Commit turns the draft into an image of the declared parts, which survives a crash. parent is
	// an image that likely shares data with it, or "". After an error neither draft nor image is
	// left.
	Commit(ctx context.Context, parent string) (Image, error)
	// Abort removes the draft. After Commit it does nothing.
	Abort() error
}

// Lease is an image in use. It cannot be changed or removed.
type Lease interface {
	Dir() string
	// Verify checks the parts that opening the lease has not checked.
	Verify(ctx context.Context) error
	Release() error
}

// Image describes a stored image.
type Image struct {
	ID, Sum string
	Bytes   int64
}

// ImageSize is how much disk an image takes, and how much its removal would free.
type ImageSize struct{ Bytes, Own int64 }
