package secrets

import (
	"context"
	"time"
)

// Sealed is one version of a secret as it is kept.
type Sealed struct {
	Generation int64 // given by the store, grows over all secrets
	Owner      string
	Name       string
	Version    int64
	Box        []byte // the value under its data key
	Wrapped    []byte // the data key under the key By
	By         string
	Created    time.Time
	Retired    time.Time // zero is the current one
}

// Store keeps secrets. Its errors of kind NotFound are Unknown's.
type Store interface {
	// InsertSecret adds a secret with its first version. It is Exists if the
	// owner has one of that name, whatever the case of its letters, and
	// Exhausted if the owner has most already.
	InsertSecret(ctx context.Context, info Info, s Sealed, most int) error
	// AddSecretVersion makes s the current version and drops those that
	// retired too long ago. It is Conflict unless s follows the current one.
	AddSecretVersion(ctx context.Context, info Info, s Sealed, keep Retention) error
	// FindSecret finds an owner's secret by name or ID, with its versions,
	// the newest first.
	FindSecret(ctx context.Context, owner, ref string) (Info, []Sealed, error)
	// Secrets returns an owner's secrets, oldest first.
	Secrets(ctx context.Context, owner string) ([]Info, error)
	// DeleteSecret reports whether the secret was there.
	DeleteSecret(ctx context.Context, id string) (bool, error)
	// SealedNotBy returns up to limit versions of all owners whose data keys
	// are wrapped by another key than by.
	SealedNotBy(ctx context.Context, by string, limit int) ([]Sealed, error)
	// Rewrap replaces the wrapped data key of a generation, if it is still
	// wrapped by s.By.
	Rewrap(ctx context.Context, s Sealed, wrapped []byte, by string) error
}

// Keeper wraps data keys with a key of its own, the key-encryption key.
type Keeper interface {
	// Create makes the first key, where the keeper makes keys. It is only
	// called while nothing is sealed. Called at once by many, it makes one.
	Create(ctx context.Context) error
	// Hold keeps all keys usable until release: a rotation sees what is wrapped
	// before that.
	Hold(ctx context.Context) (release func(), err error)
	// Wrap wraps under the current key and says which one that is. Without a
	// key it is NotFound.
	Wrap(ctx context.Context, dataKey, bound []byte) (wrapped []byte, by string, err error)
	// Unwrap opens what Wrap made, with the same bound bytes.
	Unwrap(ctx context.Context, by string, wrapped, bound []byte) (dataKey []byte, err error)
	// Rotate makes a new key current, calls rewrap with its name, and forgets
	// the others only if that succeeds.
	Rotate(ctx context.Context, rewrap func(by string) error) error
}
