package secrets

import (
	"context"
	"time"
)

// Sealed is one stored version of a secret.
type Sealed struct {
	Generation int64 // set by the store; increases over all secrets
	Owner      string
	Name       string
	Version    int64
	Box        []byte // the value, encrypted with its data key
	Wrapped    []byte // the data key, wrapped with the key By
	By         string
	Created    time.Time
	Retired    time.Time // zero for the current version
}

// Store stores secrets. Its errors of kind NotFound are those of Unknown.
type Store interface {
	// InsertSecret adds a secret with its first version. The error is Exists if the owner has one
	// with that name, ignoring case, and Exhausted if the owner has limit secrets already.
	InsertSecret(ctx context.Context, info Info, s Sealed, limit int) error
	// AddSecretVersion makes s the current version and removes those that retired too long ago. The
	// error is Conflict unless s follows the current one.
	AddSecretVersion(ctx context.Context, info Info, s Sealed, keep Retention) error
	// FindSecret returns an owner's secret by name or ID, with its versions, the newest first.
	FindSecret(ctx context.Context, owner, ref string) (Info, []Sealed, error)
	// Secrets returns an owner's secrets, oldest first.
	Secrets(ctx context.Context, owner string) ([]Info, error)
	// DeleteSecret reports whether the secret existed.
	DeleteSecret(ctx context.Context, id string) (bool, error)
	// SealedNotBy returns up to limit versions of all owners whose data keys are wrapped with
	// another key than by.
	SealedNotBy(ctx context.Context, by string, limit int) ([]Sealed, error)
	// Rewrap replaces the wrapped data key of a generation, if it is still wrapped by s.By.
	Rewrap(ctx context.Context, s Sealed, wrapped []byte, by string) error
}

// Keeper wraps data keys with a key that it keeps, the key-encryption key.
type Keeper interface {
	// Create creates the first key, if this kind of Keeper creates keys. It is called only while
	// nothing is sealed. Concurrent calls create only one key.
	Create(ctx context.Context) error
	// Hold delays rotations until release is called. Otherwise a rotation could miss a data key
	// that is wrapped at the same time.
	Hold(ctx context.Context) (release func(), err error)
	// Wrap wraps with the current key and returns its name. The error is NotFound if there is no
	// key.
	Wrap(ctx context.Context, dataKey, bound []byte) (wrapped []byte, by string, err error)
	// Unwrap opens the result of Wrap, with the same bound bytes.
	Unwrap(ctx context.Context, by string, wrapped, bound []byte) (dataKey []byte, err error)
	// Rotate creates a new current key, calls rewrap with its name, and removes the others only if
	// that succeeds.
	Rotate(ctx context.Context, rewrap func(by string) error) error
}
