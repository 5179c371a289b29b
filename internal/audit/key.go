package audit

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"
)

const keyName = "key"

// openKey reads the key that signs tree heads. If it does not exist, openKey creates it.
func (l *Log) openKey() error {
	text, err := readKey(l.path(keyName))
	if errors.Is(err, fs.ErrNotExist) {
		if err := l.makeKey(); err != nil {
			return err
		}
		text, err = readKey(l.path(keyName))
	}
	if err != nil {
		return fmt.Errorf("key of the audit log: %w", err)
	}
	if l.signer, err = note.NewSigner(text); err != nil {
		return fmt.Errorf("key of the audit log: %w", err)
	}
	if l.key, err = verifierKey(text); err != nil {
		return fmt.Errorf("key of the audit log: %w", err)
	}
	l.verifier, err = note.NewVerifier(l.key)
	return err
}

func readKey(path string) (string, error) {
	f, err := openAt(path, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	// A user who can read the key could sign forged tree heads.
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s can be read by others (mode %04o)", path, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, 4096))
	return strings.TrimSpace(string(data)), err
}

// makeKey creates the key once. If several processes try this, one holds the lock and the others
// then find the key.
func (l *Log) makeKey() (err error) {
	if err := l.acquire(context.Background()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Flock(int(l.lock.Fd()), unix.LOCK_UN)) }()
	if _, err := os.Lstat(l.path(keyName)); err == nil {
		return nil
	}
	// Do not create a new key for an existing log: its tree heads would appear to be unsigned.
	if segments, err := listSegments(l.dir); err != nil || len(segments) > 0 {
		return errors.Join(fmt.Errorf("key of the audit log: it is missing, and there are entries"), err)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	name := "crannog/" + hex.EncodeToString(public[:4])
	verifier, err := note.NewEd25519VerifierKey(name, public)
	if err != nil {
		return err
	}
	// Both halves of a key have the same name and hash.
	parts := strings.SplitN(verifier, "+", 3)
	seed := append([]byte{algorithm}, private.Seed()...)
	text := strings.Join([]string{"PRIVATE", "KEY", name, parts[1], base64.StdEncoding.EncodeToString(seed)}, "+") + "\n"
	if err := replaceFile(l.path(keyName), []byte(text)); err != nil {
		return unavailable(l.dir, err)
	}
	return nil
}

// algorithm is the code for Ed25519 in the keys of signed notes.
const algorithm = 1

// verifierKey derives the public half of a signer's key.
func verifierKey(signer string) (string, error) {
	parts := strings.SplitN(signer, "+", 5)
	if len(parts) != 5 {
		return "", errors.New("it does not have the format of a key")
	}
	seed, err := base64.StdEncoding.DecodeString(parts[4])
	if err != nil || len(seed) != 1+ed25519.SeedSize || !bytes.HasPrefix(seed, []byte{algorithm}) {
		return "", errors.New("it is not an Ed25519 key")
	}
	public, _ := ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey)
	return note.NewEd25519VerifierKey(parts[2], public)
}
