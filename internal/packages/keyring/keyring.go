// Package keyring owns the OpenPGP keys that may sign the lists of Debian archives: which of the
// host's keys these are, the file in which the package cache has them, and verifying signatures with
// them. The server writes the file, and the egress gateway, which sees no other file of the host,
// reads it.
package keyring

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"
)

// Limits of a file of keys.
const (
	// MaxSize is the maximum size of all keys.
	MaxSize = 8 << 20
	maxKeys = 2000
)

// Keys are the keys of a file. The zero Keys verify nothing.
type Keys struct {
	list openpgp.EntityList
	// raw are the packets of the keys, without armor.
	raw []byte
	// State identifies the set of keys.
	State string
}

// Len returns the number of keys.
func (k Keys) Len() int { return len(k.list) }

var (
	armorBegin = []byte("-----BEGIN PGP PUBLIC KEY BLOCK-----")
	armorEnd   = []byte("-----END PGP PUBLIC KEY BLOCK-----")
)

// Parse reads the public keys of a file, armored or not.
func Parse(data []byte) (Keys, error) {
	if len(data) > MaxSize {
		return Keys{}, fmt.Errorf("it has more than %d bytes", MaxSize)
	}
	// Each packet begins with a byte of which the highest bit is set.
	if len(data) > 0 && data[0]&0x80 == 0 {
		var err error
		if data, err = unarmor(data); err != nil {
			return Keys{}, err
		}
	}
	raw, err := publicPackets(data)
	if err != nil {
		return Keys{}, err
	}
	list, err := openpgp.ReadKeyRing(bytes.NewReader(raw))
	switch {
	case err != nil:
		return Keys{}, fmt.Errorf("its keys cannot be read: %w", err)
	case len(list) == 0:
		return Keys{}, errors.New("it has no public key")
	case len(list) > maxKeys:
		return Keys{}, fmt.Errorf("it has more than %d keys", maxKeys)
	}
	sum := sha256.Sum256(raw)
	return Keys{list: list, raw: raw, State: hex.EncodeToString(sum[:])}, nil
}

// unarmor returns the packets of all armored blocks of a text.
func unarmor(text []byte) ([]byte, error) {
	var out []byte
	for {
		begin := bytes.Index(text, armorBegin)
		if begin < 0 {
			break
		}
		text = text[begin:]
		end := bytes.Index(text, armorEnd)
		if end < 0 {
			return nil, errors.New("an armored block of it has no end")
		}
		end += len(armorEnd)
		block, err := armor.Decode(bytes.NewReader(text[:end]))
		if err != nil {
			return nil, fmt.Errorf("an armored block of it cannot be read: %w", err)
		}
		packets, err := io.ReadAll(block.Body)
		if err != nil {
			return nil, fmt.Errorf("an armored block of it cannot be read: %w", err)
		}
		out, text = append(out, packets...), text[end:]
	}
	if out == nil {
		return nil, errors.New("it has no public key")
	}
	return out, nil
}

// Tags of packets (RFC 9580, section 5).
const (
	tagSignature     = 2
	tagPublicKey     = 6
	tagUserID        = 13
	tagPublicSubkey  = 14
	tagUserAttribute = 17
)

// publicPackets returns the packets that public keys consist of. A file with a private key is
// rejected: a copy of it in the cache could be read by other users of the machine.
func publicPackets(data []byte) ([]byte, error) {
	var out bytes.Buffer
	packets := packet.NewOpaqueReader(bytes.NewReader(data))
	for {
		p, err := packets.Next()
		if errors.Is(err, io.EOF) {
			return out.Bytes(), nil
		}
		if err != nil {
			return nil, fmt.Errorf("it is no file of OpenPGP keys: %w", err)
		}
		if !slices.Contains([]uint8{tagSignature, tagPublicKey, tagUserID, tagPublicSubkey, tagUserAttribute}, p.Tag) {
			const secretKey, secretSubkey = 5, 7
			if p.Tag == secretKey || p.Tag == secretSubkey {
				return nil, errors.New("it has a private key; export only the public keys (gpg --export)")
			}
			continue
		}
		if err := p.Serialize(&out); err != nil {
			return nil, err
		}
	}
}
