// Package secrets owns sealed secrets: how they are stored, who may use them, and how to read
// values that are stored elsewhere. A value is never shown after it was set. Only the egress
// gateway receives the value, to set it on requests.
package secrets

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
)

// Limits of what is stored.
const (
	maxName          = 64
	maxPerOwner      = 1000
	maxMetadata      = 32
	maxMetadataKey   = 128  // bytes
	maxMetadataValue = 1024 // bytes
	maxMetadataBytes = 8192 // bytes of all keys and values
)

// KeepOld configures which earlier values are kept after a rotation, and so are still redacted,
// because a log or a page may contain them.
var KeepOld = Retention{For: 30 * 24 * time.Hour, Most: 8}

// Retention limits earlier values by their age and their number.
type Retention struct {
	For  time.Duration
	Most int
}

// IDPrefix is the prefix of the ID of every secret. No name has it.
const IDPrefix = "sec_"

// Caller is the caller of a method. The zero Caller has no permissions.
type Caller struct {
	// Owner is the key's ID, or "" for local callers.
	Owner string
	// Local callers can read the machine's files anyway, so only they may refer to values outside
	// of the vault.
	Local bool
}

func (c Caller) check() error {
	if c.Local == (c.Owner == "") {
		return nil
	}
	return fault.New(fault.Unauthenticated, "unauthenticated", "no caller")
}

// Info is what callers see of a secret.
type Info struct {
	ID       string
	Owner    string
	Name     string
	Version  int64 // 1 for a new one
	Metadata map[string]string
	Created  time.Time
	Updated  time.Time
}

// Resolved is a value for the egress gateway. It cannot be printed.
type Resolved struct {
	Value config.Secret
	// Generation increases with each rotation and is never reused. An approval is bound to it.
	Generation int64
	// Old are earlier values, which must still be redacted.
	Old []config.Secret
}

// Options configure a Vault. Store and Keys are required.
type Options struct {
	Store Store
	Keys  Keeper
	// Exec lists the command lines that exec: may run, exactly as in a reference. If it is empty,
	// exec: is refused.
	Exec []string
	// Getenv reads the server's environment, for env: and for the address of a HashiCorp Vault. If
	// it is nil, both are refused.
	Getenv func(string) string
	// Transport connects to a HashiCorp Vault. Nil trusts the system's CAs.
	Transport http.RoundTripper
}

// Vault stores secrets and resolves references to values. It is safe for concurrent use, and
// several processes may share one store.
type Vault struct {
	Options
	mu      sync.Mutex
	sources map[string]*source // by reference
	next    int64              // generation of values that are stored elsewhere
}

// New returns a Vault.
func New(o Options) *Vault {
	// Generations of other sources start with the clock, so that those of an earlier process are
	// not reused.
	return &Vault{Options: o, sources: map[string]*source{}, next: time.Now().UnixNano()}
}

// Set creates a secret. The error is Exists if the name is taken. Use Rotate to replace values.
func (v *Vault) Set(ctx context.Context, caller Caller, name string, value []byte, metadata map[string]string) (Info, error) {
	if err := caller.check(); err != nil {
		return Info{}, err
	}
	if err := checkNew(name, value, metadata); err != nil {
		return Info{}, err
	}
	now := time.Now().UTC().Round(0)
	info := Info{ID: ids.New(IDPrefix), Owner: caller.Owner, Name: name, Version: 1, Metadata: maps.Clone(metadata), Created: now, Updated: now}
	err := v.sealing(ctx, func() error {
		sealed, err := v.seal(ctx, info, value)
		if err != nil {
			return err
		}
		return v.Store.InsertSecret(ctx, info, sealed, maxPerOwner)
	})
	return info, err
}

// Rotate gives a secret, by name or ID, a new value. Metadata, if not nil, replaces the secret's
// metadata.
func (v *Vault) Rotate(ctx context.Context, caller Caller, ref string, value []byte, metadata map[string]string) (Info, error) {
	if err := caller.check(); err != nil {
		return Info{}, err
	}
	if err := redact.Check(value); err != nil {
		return Info{}, err
	}
	if err := checkMetadata(metadata); err != nil {
		return Info{}, err
	}
	info, _, err := v.Store.FindSecret(ctx, caller.Owner, ref)
	if err != nil {
		return Info{}, err
	}
	info.Version++
	info.Updated = time.Now().UTC().Round(0)
	if metadata != nil {
		info.Metadata = maps.Clone(metadata)
	}
	err = v.sealing(ctx, func() error {
		sealed, err := v.seal(ctx, info, value)
		if err != nil {
			return err
		}
		return v.Store.AddSecretVersion(ctx, info, sealed, KeepOld)
	})
	return info, err
}

// Remove removes a secret with all its values.
func (v *Vault) Remove(ctx context.Context, caller Caller, ref string) (Info, error) {
	info, err := v.Find(ctx, caller, ref)
	if err != nil {
		return Info{}, err
	}
	existed, err := v.Store.DeleteSecret(ctx, info.ID)
	if err == nil && !existed {
		err = Unknown(ref)
	}
	return info, err
}

// Find returns a secret by name or ID. Other owners' secrets are not found.
func (v *Vault) Find(ctx context.Context, caller Caller, ref string) (Info, error) {
	if err := caller.check(); err != nil {
		return Info{}, err
	}
	info, _, err := v.Store.FindSecret(ctx, caller.Owner, ref)
	return info, err
}

// List returns the caller's secrets without values, oldest first.
func (v *Vault) List(ctx context.Context, caller Caller) ([]Info, error) {
	if err := caller.check(); err != nil {
		return nil, err
	}
	return v.Store.Secrets(ctx, caller.Owner)
}

// CheckName returns an error if the name is not valid for a secret.
func CheckName(name string) error {
	bad := len(name) == 0 || len(name) > maxName || strings.HasPrefix(strings.ToLower(name), IDPrefix)
	for i := 0; i < len(name) && !bad; i++ {
		c := name[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		bad = !letter && (i == 0 || c != '-' && (c < '0' || c > '9'))
	}
	if bad {
		return fault.Newf(fault.Invalid, "secret_name_invalid",
			"a secret's name has up to %d letters, digits, _ and -, begins with a letter or _, and not with %s", maxName, IDPrefix).
			WithHint("for example GITHUB_TOKEN")
	}
	return nil
}

func checkNew(name string, value []byte, metadata map[string]string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := redact.Check(value); err != nil {
		return err
	}
	return checkMetadata(metadata)
}

func checkMetadata(metadata map[string]string) error {
	total := 0
	for k, v := range metadata {
		total += len(k) + len(v)
		if k == "" || len(k) > maxMetadataKey || len(v) > maxMetadataValue {
			return fault.Newf(fault.Invalid, "secret_metadata_invalid",
				"a key of a secret's metadata has 1 to %d bytes and a value at most %d", maxMetadataKey, maxMetadataValue)
		}
	}
	if len(metadata) > maxMetadata || total > maxMetadataBytes {
		return fault.Newf(fault.Invalid, "secret_metadata_invalid",
			"a secret's metadata has at most %d entries and %d bytes", maxMetadata, maxMetadataBytes)
	}
	return nil
}

// Unknown returns the error for a secret that does not exist or belongs to another owner.
func Unknown(ref string) error {
	if CheckName(ref) != nil && !strings.HasPrefix(ref, IDPrefix) {
		// Do not repeat ref, because it may be a value that was given in place of a name.
		return fault.New(fault.NotFound, "secret_not_found", "no such secret")
	}
	return fault.Newf(fault.NotFound, "secret_not_found", "no secret %q", ref).
		WithHint("crannog secret ls lists them")
}
