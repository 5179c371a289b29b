package key

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
)

// Adopt stores a secret that the operator chose as a key, unless it is one already. The operator of
// several servers may give each the same key.
func (r *Ring) Adopt(ctx context.Context, name, secret string) (Key, error) {
	if !WellFormed(secret) {
		return Key{}, fault.New(fault.Invalid, "invalid_key", "the key must be "+Prefix+" and 40 lower-case hex digits").
			WithHint("crannog key new makes one")
	}
	if err := checkName(name); err != nil {
		return Key{}, err
	}
	hash := sha256.Sum256([]byte(secret))
	k, err := r.store.KeyByHash(ctx, hash)
	if err == nil && !k.Opens.validFor(API) {
		return Key{}, fault.New(fault.Conflict, "key_for_mcp", "this key is valid only for the tools of agents at /mcp").
			WithHint("crannog key new makes one for the API")
	}
	if fault.KindOf(err) != fault.NotFound {
		return k, err
	}
	k = Key{ID: newID(), Name: name, Opens: API, Hash: hash, Created: time.Now().UTC().Round(0)}
	if err := r.record(ctx, audit.KeyMade, k); err != nil {
		return Key{}, fmt.Errorf("adopt key: %w", err)
	}
	if err := r.store.InsertKey(ctx, k); err != nil {
		return Key{}, fmt.Errorf("adopt key: %w", err)
	}
	return k, nil
}
