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
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// KeyFileName is the key file's name in the state directory.
const KeyFileName = "secrets.key"

const (
	codeKeyMissing = "secrets_key_missing"
	keyLine        = "crannog-secrets-key-1 "
	maxKeyFile     = 64 << 10
)

// KeyFile is a Keeper whose keys are in a file that only its user can read:
// one line each, the current one first. More than one is there only while a
// rotation goes on, or after one was interrupted. The file is read anew each
// time, because another process may have rotated.
type KeyFile struct{ path string }

// NewKeyFile names the file. It is made with the first secret.
func NewKeyFile(path string) *KeyFile { return &KeyFile{path} }

type fileKey struct {
	id  string
	key []byte
}

// Create makes the file with one key, unless it is there. Of many that try at
// once one makes it: a link to a whole file either happens or does not.
func (k *KeyFile) Create(context.Context) error {
	key := make([]byte, keySize)
	defer clear(key)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	temp, err := k.write([]fileKey{{key: key}})
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp) }() // under its other name the file stays
	if err := os.Link(temp, k.path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make key file: %w", err)
	}
	return syncDir(filepath.Dir(k.path))
}

// Hold takes the lock that a rotation takes alone.
func (k *KeyFile) Hold(ctx context.Context) (func(), error) { return k.lock(ctx, syscall.LOCK_SH) }

// Wrap wraps under the file's first key.
func (k *KeyFile) Wrap(_ context.Context, dataKey, bound []byte) ([]byte, string, error) {
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

// Unwrap looks for the key by its name.
func (k *KeyFile) Unwrap(_ context.Context, by string, wrapped, bound []byte) ([]byte, error) {
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
	return nil, fault.Newf(fault.Unavailable, "secrets_key_wrong", "the key file %s does not hold the key %s that this secret is sealed with", k.path, by).
		WithHint("restore the key file that belongs to this state directory")
}

// Rotate puts a new key first, has all moved to it, and drops the others.
func (k *KeyFile) Rotate(ctx context.Context, rewrap func(by string) error) error {
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
	keys = append([]fileKey{{keyID(key), key}}, keys...)
	defer forget(keys)
	if err := k.replace(keys); err != nil {
		return err
	}
	if err := rewrap(keys[0].id); err != nil {
		return err
	}
	return k.replace(keys[:1])
}

// read returns the keys after looking at who else could have read them.
func (k *KeyFile) read() ([]fileKey, error) {
	f, err := os.OpenFile(k.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Newf(fault.NotFound, codeKeyMissing, "the key file %s of the secrets is missing", k.path).
			WithHint("restore it from a backup; without it the secrets cannot be opened, only removed and set again")
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "secrets_key_unreadable", "the key file "+k.path+" of the secrets cannot be read")
	}
	defer f.Close()
	if err := checkPrivate(f); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	defer clear(data)
	var keys []fileKey
	for line := range bytes.Lines(data) {
		text, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte(keyLine))
		key := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
		n, err := base64.StdEncoding.Decode(key, text)
		if !ok || err != nil || n != keySize {
			forget(keys)
			// The line is not shown: it may be most of a key.
			return nil, fault.Newf(fault.Unavailable, "secrets_key_damaged", "the key file %s is damaged in line %d", k.path, len(keys)+1).
				WithHint("restore it from a backup")
		}
		keys = append(keys, fileKey{keyID(key[:n]), key[:n]})
	}
	if len(keys) == 0 {
		return nil, fault.Newf(fault.Unavailable, "secrets_key_damaged", "the key file %s is empty", k.path).WithHint("restore it from a backup")
	}
	return keys, nil
}

// checkPrivate refuses a file that others can read or that others wrote: the
// one is a leak that happened, the other a key that somebody else knows.
func checkPrivate(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("look at key file: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.Mode().IsRegular():
		return fault.Newf(fault.Denied, "secrets_key_not_file", "%s is not a regular file", f.Name())
	case int(st.Uid) != os.Geteuid():
		return fault.Newf(fault.Denied, "secrets_key_not_private", "the key file %s belongs to another user (uid %d)", f.Name(), st.Uid).
			WithHint("make it yours, if you know who wrote it: chown " + fmt.Sprint(os.Geteuid()) + " " + f.Name())
	case info.Mode().Perm()&0o077 != 0:
		return fault.Newf(fault.Denied, "secrets_key_not_private", "the key file %s can be used by others (mode %#o)", f.Name(), info.Mode().Perm()).
			WithHint("chmod 600 " + f.Name() + ", and rotate the key if others may have read it: crannog secret rotate-key")
	}
	return nil
}

func (k *KeyFile) replace(keys []fileKey) error {
	temp, err := k.write(keys)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, k.path); err != nil {
		return errors.Join(fmt.Errorf("replace key file: %w", err), os.Remove(temp))
	}
	return syncDir(filepath.Dir(k.path))
}

// write puts keys into a new file beside the key file, down to the disk: a
// secret must never be there before its key is.
func (k *KeyFile) write(keys []fileKey) (path string, err error) {
	f, err := os.CreateTemp(filepath.Dir(k.path), ".secrets-key-") // mode 0600
	if err != nil {
		return "", fmt.Errorf("write key file: %w", err)
	}
	var data []byte
	for _, key := range keys {
		data = append(data, keyLine...)
		data = base64.StdEncoding.AppendEncode(data, key.key)
		data = append(data, '\n')
	}
	defer clear(data)
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("write key file: %w", err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// lockRetry is how often a lock that another process has is tried again.
const lockRetry = 10 * time.Millisecond

// lock locks a file beside the key file, which itself is replaced.
func (k *KeyFile) lock(ctx context.Context, how int) (release func(), err error) {
	f, err := os.OpenFile(k.path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
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

// keyID names a key without saying anything of it.
func keyID(key []byte) string {
	id, err := hkdf.Key(sha256.New, key, nil, "crannog secrets key name", 8)
	if err != nil { // only for lengths that are not ours
		return ""
	}
	return "file:" + hex.EncodeToString(id)
}

func forget(keys []fileKey) {
	for _, k := range keys {
		clear(k.key)
	}
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
