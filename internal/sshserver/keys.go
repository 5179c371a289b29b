package sshserver

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/crypto/ssh"

	"github.com/crannog/crannog/internal/host/durable"
)

// maxKeyFile bounds a file with keys.
const maxKeyFile = 256 << 10

// HostKey returns the key in a file that only its owner can read, and creates it the first time.
// Clients recognise the endpoint by it.
func HostKey(file string) (ssh.Signer, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if data, err = newHostKey(file); errors.Is(err, fs.ErrExist) {
			data, err = os.ReadFile(file) // another process was faster
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the SSH host key: %w", err)
	}
	key, err := ssh.ParsePrivateKey(data)
	if err != nil {
		return nil, fmt.Errorf("the SSH host key in %s: %w", file, err)
	}
	return key, nil
}

func newHostKey(file string) ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(key, "crannog")
	if err != nil {
		return nil, err
	}
	data := pem.EncodeToMemory(block)
	return data, durable.Create(file, data, durable.Options{Draft: ".*.new", Mode: 0o600, Sync: true})
}

// PublicKeys reads public keys, each in a line as in ~/.ssh/authorized_keys. Lines with options are
// refused: an option such as restrict would have no effect.
func PublicKeys(r io.Reader) ([]ssh.PublicKey, error) {
	rest, err := io.ReadAll(io.LimitReader(r, maxKeyFile+1))
	if err != nil {
		return nil, err
	}
	if len(rest) > maxKeyFile {
		return nil, fmt.Errorf("it is larger than %d bytes", maxKeyFile)
	}
	var keys []ssh.PublicKey
	for len(rest) > 0 {
		key, _, options, after, err := ssh.ParseAuthorizedKey(rest)
		if err != nil {
			break // only lines without a key are left
		}
		if len(options) > 0 {
			return nil, errors.New("a key has options, which are not supported")
		}
		keys, rest = append(keys, key), after
	}
	if len(keys) == 0 {
		return nil, errors.New("it has no public key")
	}
	return keys, nil
}
