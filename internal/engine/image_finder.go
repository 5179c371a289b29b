package engine

import (
	"context"
	"time"
)

// FoundImage is an image of an engine's own store, and what it says about the programs that run in
// it.
type FoundImage struct {
	OCI OCI
	// User is the account of its programs, and Dir their working directory. Both may be "".
	User, Dir string
	Env       map[string]string
	// Entrypoint and Command are the arguments of the program that runs by default.
	Entrypoint, Command []string
	Bytes               int64
	Made                time.Time
}

// ImageFinder is the ability to find images in a store of the engine's own, which only callers on
// the host may name: the store holds what its other users put there.
type ImageFinder interface {
	// FindImage returns the image that has a name in the engine's store. The error is NotFound if
	// there is none.
	FindImage(ctx context.Context, ref string) (FoundImage, error)
}
