package provenance

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/durable"
)

// DirName is the directory of the keys in a state directory.
const DirName = "provenance"

const (
	keyName      = "key"
	lockName     = "lock"
	privateBlock = "PRIVATE KEY"
	// maxKey limits the size of a key file.
	maxKey = 4096
)

// Keys is the directory with the key of one installation. Several processes may use it
// concurrently: one of them creates the key, and all sign with it.
type Keys struct{ dir string }

// NewKeys returns the key directory. It is created together with the key.
func NewKeys(dir string) *Keys { return &Keys{dir} }

// Public returns the public key. It returns NotFound if there is no key yet.
func (k *Keys) Public() (PublicKey, error) {
	s, err := k.read()
	if errors.Is(err, fs.ErrNotExist) {
		return PublicKey{}, fault.Newf(fault.NotFound, "provenance_key_missing", "no key was made in %s yet", k.dir)
	}
	if err != nil {
		return PublicKey{}, err
	}
	return s.Public, nil
}

// Signer returns the key for signing, and creates it if there is none.
func (k *Keys) Signer() (*Signer, error) {
	s, err := k.read()
	if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if err := k.make(); err != nil {
		return nil, fmt.Errorf("key of provenance: %w", err)
	}
	return k.read()
}

func (k *Keys) path(name string) string { return filepath.Join(k.dir, name) }

// read reads the key. It returns fs.ErrNotExist if there is none.
func (k *Keys) read() (*Signer, error) {
	unusable := func(text string) error {
		return fault.Newf(fault.Denied, "provenance_key_unusable", "%s: %s", k.path(keyName), text).
			WithHint("give it and its directory to the user who runs Crannog, with the modes 0600 and 0700")
	}
	if err := k.checkDir(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(k.path(keyName), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// A user who can read the key could sign files that never were in a sandbox.
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, unusable("other users can access it")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKey))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != privateBlock {
		return nil, unusable("it is not a key in PEM format")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, unusable("it is not an Ed25519 key")
	}
	public, _ := key.Public().(ed25519.PublicKey)
	s := &Signer{key: key}
	s.Public, err = publicOf(public)
	return s, err
}

// checkDir rejects a directory into which other users could put a key.
func (k *Keys) checkDir() error {
	info, err := os.Lstat(k.dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || info.Mode().Perm()&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		return fault.Newf(fault.Denied, "provenance_key_unusable", "other users can write to the directory %s, or own it", k.dir).
			WithHint("give it to the user who runs Crannog, with mode 0700")
	}
	return nil
}

// make creates the key once. If several processes try this, one holds the lock and the others then
// find the key. A process that is killed leaves at most a partial key under another name, which the
// next process overwrites.
func (k *Keys) make() (err error) {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return err
	}
	if err := k.checkDir(); err != nil {
		return err
	}
	lock, err := os.OpenFile(k.path(lockName), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := acquire(lock); err != nil {
		return err
	}
	if _, err := os.Lstat(k.path(keyName)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	// Sync the key before anything is signed with it. If a crash removed the key, statements signed
	// with it could never be verified.
	text := pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der})
	return durable.Replace(k.path(keyName), text, durable.Options{Sync: true})
}

// lockWait limits the wait for another process that creates a key. A process that is suspended with
// the lock must not block all others.
const lockWait = 10 * time.Second

// acquire locks a file. It waits for at most lockWait.
func acquire(lock *os.File) error {
	for deadline := time.Now().Add(lockWait); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock: %w", err)
		case time.Now().After(deadline):
			return fmt.Errorf("lock: another process has held it for %v", lockWait)
		}
	}
}

// Signer signs statements.
type Signer struct {
	Public PublicKey
	key    ed25519.PrivateKey
}

// Sign returns a statement in a signed envelope.
func (s *Signer) Sign(st Statement) ([]byte, error) { return s.sign(st) }

// SignImage returns a statement about an image in a signed envelope.
func (s *Signer) SignImage(st ImageStatement) ([]byte, error) { return s.sign(st) }

func (s *Signer) sign(statement any) ([]byte, error) {
	payload, err := json.Marshal(statement)
	if err != nil {
		return nil, err
	}
	sig := ed25519.Sign(s.key, pae(PayloadType, payload))
	out, err := json.Marshal(envelope{
		PayloadType: PayloadType, Payload: base64.StdEncoding.EncodeToString(payload),
		Signatures: []signature{{KeyID: s.Public.ID(), Sig: base64.StdEncoding.EncodeToString(sig)}},
	})
	if err != nil {
		return nil, err
	}
	if len(out) >= MaxEnvelope {
		return nil, fault.New(fault.Invalid, "provenance_too_large", "the names of the files are together too long for a statement").
			WithHint("name fewer paths, or leave the provenance out")
	}
	return append(out, '\n'), nil
}
