package secrets

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/fault"
)

// keySize is the size of an AES-256 key.
const keySize = 32

// sealing runs work while no key can be removed. If work fails because there is no key, and no
// secret is stored yet, sealing creates a key and runs work again.
func (v *Vault) sealing(ctx context.Context, work func() error) error {
	release, err := v.Keys.Hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	err = work()
	if fault.CodeOf(err) != codeKeyMissing {
		return err
	}
	// If the key is lost, do not create a new one. It would hide the loss, and prevent the
	// old one from being restored.
	existing, listErr := v.Store.SealedNotBy(ctx, "", 1)
	if listErr != nil {
		return listErr
	}
	if len(existing) > 0 {
		// Another process may have created the key and the first secret after the check. If the key
		// is lost, work returns the error.
		return work()
	}
	if err := v.Keys.Create(ctx); err != nil {
		return err
	}
	return work()
}

// seal encrypts a value with its own data key.
func (v *Vault) seal(ctx context.Context, info Info, value []byte) (Sealed, error) {
	dataKey := make([]byte, keySize)
	defer clear(dataKey)
	if _, err := rand.Read(dataKey); err != nil {
		return Sealed{}, fmt.Errorf("seal secret: %w", err)
	}
	s := Sealed{Owner: info.Owner, Name: info.Name, Version: info.Version, Created: info.Updated}
	aead, err := newAEAD(dataKey)
	if err != nil {
		return Sealed{}, err
	}
	s.Box = aead.Seal(nil, nil, value, s.bound())
	if s.Wrapped, s.By, err = v.Keys.Wrap(ctx, dataKey, s.bound()); err != nil {
		return Sealed{}, err
	}
	return s, nil
}

func (v *Vault) unseal(ctx context.Context, s Sealed) (config.Secret, error) {
	dataKey, err := v.Keys.Unwrap(ctx, s.By, s.Wrapped, s.bound())
	if err != nil {
		return "", err
	}
	defer clear(dataKey)
	aead, err := newAEAD(dataKey)
	if err != nil {
		return "", damaged(s)
	}
	value, err := aead.Open(nil, nil, s.Box, s.bound())
	if err != nil {
		return "", damaged(s)
	}
	defer clear(value)
	return config.Secret(value), nil
}

// stored returns the current value of a secret in the vault, and in Old its earlier values, which
// must still be redacted.
func (v *Vault) stored(ctx context.Context, owner, name string) (Resolved, error) {
	release, err := v.Keys.Hold(ctx)
	if err != nil {
		return Resolved{}, err
	}
	defer release()
	info, versions, err := v.Store.FindSecret(ctx, owner, name)
	if err != nil {
		return Resolved{}, err
	}
	var out Resolved
	for _, s := range versions {
		value, err := v.unseal(ctx, s)
		if err != nil {
			return Resolved{}, err
		}
		if s.Version == info.Version {
			out.Value, out.Generation = value, s.Generation
		} else {
			out.Old = append(out.Old, value)
		}
	}
	if out.Value == "" {
		return Resolved{}, fmt.Errorf("secret %s: version %d does not exist", info.ID, info.Version)
	}
	return out, nil
}

// rewrapBatch limits how many sealed values are in memory during a rotation.
const rewrapBatch = 100

// RotateKey creates a new key-encryption key and rewraps the data keys of all secrets with
// it. If it is interrupted, every secret can still be opened, and the next rotation rewraps all.
func (v *Vault) RotateKey(ctx context.Context, caller Caller) (moved int, err error) {
	if err := caller.check(); err != nil {
		return 0, err
	}
	if !caller.Local {
		return 0, localOnly("rotate the key of all secrets")
	}
	err = v.Keys.Rotate(ctx, func(by string) error {
		for {
			batch, err := v.Store.SealedNotBy(ctx, by, rewrapBatch)
			if err != nil || len(batch) == 0 {
				return err
			}
			for _, s := range batch {
				if err := v.rewrap(ctx, s, by); err != nil {
					return err
				}
				moved++
			}
		}
	})
	return moved, err
}

func (v *Vault) rewrap(ctx context.Context, s Sealed, want string) error {
	dataKey, err := v.Keys.Unwrap(ctx, s.By, s.Wrapped, s.bound())
	if err != nil {
		return err
	}
	defer clear(dataKey)
	wrapped, by, err := v.Keys.Wrap(ctx, dataKey, s.bound())
	if err != nil {
		return err
	}
	if by != want {
		return fault.New(fault.Conflict, "secrets_key_rotated", "another rotation of the key has begun").WithHint("try again")
	}
	return v.Store.Rewrap(ctx, s, wrapped, by)
}

// bound returns the additional authenticated data of a ciphertext: the secret's owner, name and
// version. Without it, an attacker who can write to the database could have one secret opened as
// another. Each part is preceded by its length, so that different secrets never have the same
// encoding.
func (s Sealed) bound() []byte {
	b := []byte("crannog secret 1")
	for _, part := range []string{s.Owner, s.Name} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	return binary.BigEndian.AppendUint64(b, uint64(s.Version))
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("secrets: a key has %d bytes instead of %d", len(key), keySize)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func damaged(s Sealed) error {
	return fmt.Errorf("secret %q, version %d: cannot be decrypted; the database was changed or is damaged", s.Name, s.Version)
}
