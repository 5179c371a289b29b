package engine

import (
	"context"
	"time"
)

// FoundImage describes an image in an engine's own store.
type FoundImage struct {
	OCI OCI
	// User is the account of the image's programs, and Dir is their working directory. Both may be
	// "".
	User, Dir string
	Env       map[string]string
	// Entrypoint and Command are the arguments of the default program.
	Entrypoint, Command []string
	Bytes               int64
	Made                time.Time
}

// ImageFinder is the ability to find images in an engine's own store. Only callers on the host may
// name such images, because other users of the service can put images into the store.
type ImageFinder interface {
	// FindImage returns the image with a name in the engine's store. If no image has the name, the
	// error is NotFound.
	FindImage(ctx context.Context, ref string) (FoundImage, error)
}
