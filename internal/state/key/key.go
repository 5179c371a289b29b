// Package key owns API keys: their format, storage and verification. A key is shown once, when it
// is created. Only its hash is stored.
package key

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/text"
	"github.com/crannog/crannog/internal/ids"
)

// Prefix and secretBytes define the format e2b_ and 40 lower-case hex digits, which E2B clients
// check before their first request.
const (
	Prefix      = "e2b_"
	secretBytes = 20
	secretLen   = len(Prefix) + 2*secretBytes
)

// maxName limits a key's name in bytes.
const maxName = 64

// lastUsedPrecision is the precision of LastUsed. Writing at each request would cost more than the
// request.
const lastUsedPrecision = time.Minute

// Key is a stored API key.
type Key struct {
	ID       string // "k" and 19 of [0-9a-z]
	Name     string // for people
	Opens    Opens
	Hash     [sha256.Size]byte
	Created  time.Time
	LastUsed time.Time // to the minute; zero means never
}

// Opens is the purpose for which a key is valid. The zero value is valid for nothing.
type Opens string

// The purposes of a key.
const (
	API Opens = "api" // /v1, the E2B API, and MCP
	MCP Opens = "mcp" // the tools of agents only
)

// validFor reports whether a key is valid for a purpose.
func (o Opens) validFor(purpose Opens) bool { return o == API || o == MCP && purpose == MCP }

// Store stores keys.
type Store interface {
	InsertKey(ctx context.Context, k Key) error
	// KeyByHash finds a key, or returns NotFound.
	KeyByHash(ctx context.Context, hash [sha256.Size]byte) (Key, error)
	// Keys returns all keys, oldest first.
	Keys(ctx context.Context) ([]Key, error)
	UseKey(ctx context.Context, id string, at time.Time) error
	// DeleteKey reports whether the key existed.
	DeleteKey(ctx context.Context, id string) (bool, error)
}

// Ring creates and verifies keys. It is safe for concurrent use.
type Ring struct {
	store  Store
	log    *slog.Logger
	record Recorder
}

// Recorder writes an audit entry about a key before it is created or revoked. If it fails, the
// action does not happen.
type Recorder func(ctx context.Context, kind audit.Kind, k Key) error

// NewRing returns a Ring.
func NewRing(store Store, log *slog.Logger, record Recorder) *Ring {
	return &Ring{store: store, log: log, record: record}
}

// Create creates a key for the API and returns its secret, which is not stored.
func (r *Ring) Create(ctx context.Context, name string) (secret string, k Key, err error) {
	return r.CreateFor(ctx, name, API)
}

func newID() string { return ids.New("k") }

// CreateFor creates a key for one purpose and returns its secret, which is not stored.
func (r *Ring) CreateFor(ctx context.Context, name string, opens Opens) (secret string, k Key, err error) {
	if err := checkName(name); err != nil {
		return "", Key{}, err
	}
	if opens != API && opens != MCP {
		return "", Key{}, fault.Newf(fault.Invalid, "key_opens_invalid", "the purpose of a key is %s or %s", API, MCP)
	}
	var random [secretBytes]byte
	rand.Read(random[:]) // never fails: the runtime ends the program instead
	secret = Prefix + hex.EncodeToString(random[:])
	k = Key{
		ID:      newID(),
		Name:    name,
		Opens:   opens,
		Hash:    sha256.Sum256([]byte(secret)),
		Created: time.Now().UTC().Round(0),
	}
	if err := r.record(ctx, audit.KeyMade, k); err != nil {
		return "", Key{}, fmt.Errorf("create key: %w", err)
	}
	if err := r.store.InsertKey(ctx, k); err != nil {
		return "", Key{}, fmt.Errorf("create key: %w", err)
	}
	return secret, k, nil
}

// Verify returns the key of a secret, if it is valid for the API. All invalid secrets give the same
// error, so that a caller learns nothing else.
func (r *Ring) Verify(ctx context.Context, secret string) (Key, error) {
	return r.VerifyAt(ctx, secret, API)
}

// VerifyAt is like Verify, for a purpose. The error for a key of another purpose is Denied, because
// its holder may know that it is valid.
func (r *Ring) VerifyAt(ctx context.Context, secret string, purpose Opens) (Key, error) {
	if !WellFormed(secret) {
		return Key{}, unauthenticated()
	}
	// The look-up compares hashes, and an attacker cannot choose the hash of a guess, so its timing
	// reveals nothing about a key.
	hash := sha256.Sum256([]byte(secret))
	k, err := r.store.KeyByHash(ctx, hash)
	if fault.KindOf(err) == fault.NotFound {
		return Key{}, unauthenticated()
	}
	if err != nil {
		return Key{}, fmt.Errorf("verify key: %w", err)
	}
	if subtle.ConstantTimeCompare(k.Hash[:], hash[:]) != 1 {
		return Key{}, unauthenticated()
	}
	if !k.Opens.validFor(purpose) {
		// Otherwise an agent with a key for its tools could create a sandbox with any policy.
		return Key{}, fault.New(fault.Denied, "key_for_mcp", "this key is valid only for the tools of agents at /mcp").
			WithHint("crannog key new makes one for the API")
	}
	if now := time.Now(); now.Sub(k.LastUsed) >= lastUsedPrecision {
		// The time of use is not essential, and a full disk must not lock callers out.
		if err := r.store.UseKey(ctx, k.ID, now); err != nil {
			r.log.Warn("key use not recorded", "key", k.ID, "err", err)
		}
	}
	return k, nil
}

// List returns all keys, oldest first.
func (r *Ring) List(ctx context.Context) ([]Key, error) { return r.store.Keys(ctx) }

// Revoke removes a key by its ID, or by its name if that is unique.
func (r *Ring) Revoke(ctx context.Context, ref string) (Key, error) {
	keys, err := r.store.Keys(ctx)
	if err != nil {
		return Key{}, fmt.Errorf("revoke key: %w", err)
	}
	k, err := find(keys, ref)
	if err != nil {
		return Key{}, err
	}
	if err := r.record(ctx, audit.KeyRevoked, k); err != nil {
		return Key{}, fmt.Errorf("revoke key: %w", err)
	}
	existed, err := r.store.DeleteKey(ctx, k.ID)
	if err != nil {
		return Key{}, fmt.Errorf("revoke key: %w", err)
	}
	if !existed {
		return Key{}, unknown(ref)
	}
	return k, nil
}

func find(keys []Key, ref string) (Key, error) {
	var named []Key
	for _, k := range keys {
		if k.ID == ref {
			return k, nil
		}
		if k.Name == ref && ref != "" {
			named = append(named, k)
		}
	}
	switch len(named) {
	case 0:
		return Key{}, unknown(ref)
	case 1:
		return named[0], nil
	}
	return Key{}, fault.Newf(fault.Conflict, "key_ambiguous", "%d keys have the name %q", len(named), ref).
		WithHint("name it by its ID: crannog key ls")
}

// WellFormed reports whether a secret has the format of a key.
func WellFormed(secret string) bool {
	digits, ok := strings.CutPrefix(secret, Prefix)
	return ok && len(secret) == secretLen && strings.Trim(digits, "0123456789abcdef") == ""
}

func checkName(name string) error {
	if len(name) > maxName || !text.Printable(name) {
		return fault.Newf(fault.Invalid, "key_name_invalid",
			"a key's name is at most %d bytes of printable text", maxName)
	}
	return nil
}

func unknown(ref string) error {
	return fault.Newf(fault.NotFound, "key_not_found", "no key %q", ref)
}

func unauthenticated() error {
	return fault.New(fault.Unauthenticated, "key_invalid", "the API key is missing or wrong").
		WithHint("make one with: crannog key new")
}
