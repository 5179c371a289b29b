package provenance

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"

	"github.com/crannog/crannog/internal/fault"
)

// PublicKey verifies statements.
type PublicKey struct {
	key ed25519.PublicKey
	der []byte
}

const publicBlock = "PUBLIC KEY"

// publicOf returns a key with its DER form.
func publicOf(key ed25519.PublicKey) (PublicKey, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	return PublicKey{key, der}, err
}

// ID returns the SHA-256 of the key's DER form.
func (k PublicKey) ID() string {
	sum := sha256.Sum256(k.der)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// PEM returns the key in PEM format, which openssl and other verifiers read.
func (k PublicKey) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: k.der}))
}

// ParseKey parses the output of PEM: one key and nothing else.
func ParseKey(text []byte) (PublicKey, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != publicBlock || len(bytes.TrimSpace(rest)) > 0 {
		return PublicKey{}, fault.New(fault.Invalid, "provenance_key_invalid", "it is not a public key in PEM format").
			WithHint("crannog audit key prints one")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	key, ok := parsed.(ed25519.PublicKey)
	if err != nil || !ok {
		return PublicKey{}, fault.Wrap(err, fault.Invalid, "provenance_key_invalid", "it is not an Ed25519 key").
			WithHint("crannog audit key prints one")
	}
	return publicOf(key)
}
