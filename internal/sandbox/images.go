package sandbox

import (
	"context"

	"github.com/crannog/crannog/internal/engine"
)

// Images keeps what was written down of sandboxes, on disk. It knows nothing
// of what refers to them.
type Images interface {
	// Begin makes room for a new image. Where the budget is used up that is a
	// fault of kind Exhausted.
	Begin(id string) (Draft, error)
	// Lease opens an image whose digest the caller knows.
	Lease(ctx context.Context, id, sum string) (Lease, error)
	// Remove drops an image. An unknown one is success.
	Remove(ctx context.Context, id string) error
	// Sizes lists all images.
	Sizes(ctx context.Context) (map[string]ImageSize, error)
	// Prune drops what keep does not want, and drafts of dead processes.
	Prune(ctx context.Context, keep func(id string) bool) (freed int64, err error)
	// Settle stores what images of one lineage have in common once.
	Settle(ctx context.Context) (freed int64, err error)
	// Persist has outlive a reboot what this process has committed, and within
	// bounds what killed ones have. Settle does so too, in its time.
	Persist(ctx context.Context) error
}

// Draft is an image that is being written.
type Draft interface {
	// Dir is an empty directory to write into.
	Dir() string
	// Declare sets of which parts the image will consist.
	Declare(parts []engine.Part)
	// Commit makes it an image of the declared parts, which outlives a crash. parent is one that it
	// is likely to share data with, or "". After an error neither is left.
	Commit(ctx context.Context, parent string) (Image, error)
	// Abort drops it. After Commit it does nothing.
	Abort() error
}

// Lease is an image in use: it does not change and does not go.
type Lease interface {
	Dir() string
	// Verify looks at what was not looked at when it was leased.
	Verify(ctx context.Context) error
	Release() error
}

// Image is what was written.
type Image struct {
	ID, Sum string
	Bytes   int64
}

// ImageSize is what an image takes, and what would be free without it.
type ImageSize struct{ Bytes, Own int64 }
