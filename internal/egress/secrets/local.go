package secrets

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

const (
	codeKeyMissing = "secrets_key_missing"
	keyLine        = "crannog-secrets-key-1 "
	maxKeyFile     = 64 << 10
)

// Local is a Keeper whose keys are on this machine, in a place that only its user can read. Each
// line is a key, and the first is the current one. There are several only during a rotation, or
// after an interrupted one. The place is read each time, because another process may have rotated
// the keys.
type Local struct {
	place    keyStore
	lockPath string
}

// keyStore is a store for lines of keys.
type keyStore interface {
	// load returns the stored data, or an error with the code codeKeyMissing.
	load() ([]byte, error)
	// create stores data if the place is empty. Only one of several concurrent calls succeeds.
	create(data []byte) error
	// replace replaces the stored data, completely or not at all.
	replace(data []byte) error
	// String returns the name of the place for display.
	String() string
}

type localKey struct {
	id  string
	key []byte
}

// Create creates the first key, unless there is one.
func (k *Local) Create(context.Context) error {
	key := make([]byte, keySize)
	defer clear(key)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	data := lines([]localKey{{key: key}})
	defer clear(data)
	return k.place.create(data)
}

// Hold takes a shared lock, which excludes a rotation.
func (k *Local) Hold(ctx context.Context) (func(), error) { return k.lock(ctx, syscall.LOCK_SH) }

// Wrap wraps with the current key.
func (k *Local) Wrap(_ context.Context, dataKey, bound []byte) ([]byte, string, error) {
	keys, err := k.read()
	if err != nil {
		return nil, "", err
	}
	defer forget(keys)
	aead, err := newAEAD(keys[0].key)
	if err != nil {
		return nil, "", err
	}
	return aead.Seal(nil, nil, dataKey, bound), keys[0].id, nil
}

// Unwrap finds the key by its name.
func (k *Local) Unwrap(_ context.Context, by string, wrapped, bound []byte) ([]byte, error) {
	keys, err := k.read()
	if err != nil {
		return nil, err
	}
	defer forget(keys)
	for _, key := range keys {
		if key.id != by {
			continue
		}
		aead, err := newAEAD(key.key)
		if err != nil {
			return nil, err
		}
		dataKey, err := aead.Open(nil, nil, wrapped, bound)
		if err != nil {
			return nil, errors.New("a secret's data key does not open; the database was changed or is damaged")
		}
		return dataKey, nil
	}
	return nil, fault.Newf(fault.Unavailable, "secrets_key_wrong", "%s does not have the key %s that this secret is sealed with", k.place, by).
		WithHint("restore the key that belongs to this state directory")
}

// Rotate adds a new current key, calls rewrap to rewrap all secrets with it, and removes the
// others.
func (k *Local) Rotate(ctx context.Context, rewrap func(by string) error) error {
	release, err := k.lock(ctx, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer release()
	keys, err := k.read()
	if err != nil {
		return err
	}
	key := make([]byte, keySize)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	keys = append([]localKey{{keyID(key), key}}, keys...)
	defer forget(keys)
	if err := k.store(keys); err != nil {
		return err
	}
	if err := rewrap(keys[0].id); err != nil {
		return err
	}
	return k.store(keys[:1])
}

func (k *Local) store(keys []localKey) error {
	data := lines(keys)
	defer clear(data)
	return k.place.replace(data)
}

// read returns the keys. There is at least one.
func (k *Local) read() ([]localKey, error) {
	data, err := k.place.load()
	if err != nil {
		return nil, err
	}
	defer clear(data)
	var keys []localKey
	for line := range bytes.Lines(data) {
		text, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte(keyLine))
		key := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
		n, err := base64.StdEncoding.Decode(key, text)
		if !ok || err != nil || n != keySize {
			forget(keys)
			// Do not show the line, because it may be most of a key.
			return nil, fault.Newf(fault.Unavailable, "secrets_key_damaged", "%s is damaged in line %d", k.place, len(keys)+1).
				WithHint("restore it from a backup")
		}
		keys = append(keys, localKey{keyID(key[:n]), key[:n]})
	}
	if len(keys) == 0 {
		return nil, fault.Newf(fault.Unavailable, "secrets_key_damaged", "%s is empty", k.place).WithHint("restore it from a backup")
	}
	return keys, nil
}

func lines(keys []localKey) []byte {
	var data []byte
	for _, key := range keys {
		data = append(data, keyLine...)
		data = base64.StdEncoding.AppendEncode(data, key.key)
		data = append(data, '\n')
	}
	return data
}

// lockRetry is the interval of attempts to get a lock that another process holds.
const lockRetry = 10 * time.Millisecond

// lock locks a separate file, because the key file is replaced.
func (k *Local) lock(ctx context.Context, how int) (release func(), err error) {
	return lockFile(ctx, k.lockPath, how)
}

func lockFile(ctx context.Context, path string, how int) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock key file: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // closing unlocks
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock key file: %w", err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fault.Wrap(ctx.Err(), fault.Unavailable, "secrets_key_busy", "the key of the secrets is being rotated, try again"), f.Close())
		case <-time.After(lockRetry):
		}
	}
}

// keyID returns the name of a key. It reveals nothing about the key.
func keyID(key []byte) string {
	id, err := hkdf.Key(sha256.New, key, nil, "crannog secrets key name", 8)
	if err != nil { // only for other key lengths
		return ""
	}
	return "local:" + hex.EncodeToString(id)
}

func forget(keys []localKey) {
	for _, k := range keys {
		clear(k.key)
	}
}
