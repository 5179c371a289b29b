package keyring

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"
)

// maxSignatures limits the signatures of a text, because each is another pass over the text.
const maxSignatures = 16

// UntrustedError is returned for a text that no known key vouches for, although nothing shows that it
// was changed: its keys are unknown or not valid any more, or the signature is of a weak kind.
type UntrustedError struct{ Reason string }

// Error returns the reason.
func (e *UntrustedError) Error() string { return e.Reason }

// Verify returns nil if one of the keys has signed a text and may still be used. signatures are the
// packets of detached signatures. The texts of its errors continue the name of the text.
func (k Keys) Verify(text, signatures []byte, now time.Time) error {
	issuers, err := issuersOf(signatures)
	if err != nil {
		return err
	}
	config := &packet.Config{Time: func() time.Time { return now }}
	var untrusted []string
	var forged error
	for _, e := range k.list {
		if !slices.ContainsFunc(issuers, func(id uint64) bool { return id != 0 && len(openpgp.EntityList{e}.KeysById(id)) > 0 }) {
			continue
		}
		// The library tries only one of several keys with the same ID, such as an older copy that
		// has expired. So each is tried by itself.
		md, err := openpgp.VerifyDetachedSignatureReader(openpgp.EntityList{e}, bytes.NewReader(text), bytes.NewReader(signatures), config)
		if err == nil {
			_, err = io.Copy(io.Discard, md.UnverifiedBody)
		}
		if err != nil {
			return unreadable(err)
		}
		for _, c := range md.SignatureCandidates {
			if c.SignedByEntity == nil {
				continue
			}
			switch reason := unusable(c, now, config); {
			case reason != "":
				untrusted = append(untrusted, reason)
			case c.SignatureError == nil:
				return nil
			default:
				forged = fmt.Errorf("is not what the key %s has signed: %w", nameOf(c.IssuerKeyId), c.SignatureError)
			}
		}
	}
	switch {
	case forged != nil:
		return forged
	case len(untrusted) > 0:
		slices.Sort(untrusted)
		return &UntrustedError{strings.Join(slices.Compact(untrusted), "; ")}
	case len(issuers) == 0:
		return &UntrustedError{"has no signature of a known kind"}
	}
	var names []string
	for _, id := range issuers {
		names = append(names, nameOf(id))
	}
	return &UntrustedError{"is signed by unknown keys: " + strings.Join(names, ", ")}
}

// unusable returns why a signature of a known key does not count, or "" if only its content decides.
func unusable(c *openpgp.SignatureCandidate, now time.Time, config *packet.Config) string {
	name := nameOf(c.IssuerKeyId)
	switch {
	case config.RejectMessageHashAlgorithm(c.HashAlgorithm):
		// Somebody could make another text with the same digest.
		return "is signed by the key " + name + " with the weak algorithm " + c.HashAlgorithm.String()
	case c.SignedBy == nil:
		return fmt.Sprintf("is signed by the key %s, which cannot be used: %v", name, c.SignatureError)
	case errors.Is(c.SignatureError, pgperrors.ErrSignatureExpired), errors.Is(c.SignatureError, pgperrors.ErrSignatureOlderThanKey):
		return fmt.Sprintf("has an invalid signature by the key %s: %v", name, c.SignatureError)
	}
	// The library judges the key at the time of the signature, which the holder of an old key that
	// was stolen could choose.
	if _, ok := c.SignedByEntity.SigningKeyById(now, c.IssuerKeyId, config); !ok {
		return "is signed by the key " + name + ", which has expired or was revoked"
	}
	return ""
}

// issuersOf returns the IDs of the keys that have made signatures.
func issuersOf(signatures []byte) ([]uint64, error) {
	var out []uint64
	packets := packet.NewReader(bytes.NewReader(signatures))
	for n := 0; ; n++ {
		p, err := packets.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, unreadable(err)
		}
		if n >= maxSignatures {
			return nil, fmt.Errorf("has more than %d signatures", maxSignatures)
		}
		s, ok := p.(*packet.Signature)
		if !ok || s.IssuerKeyId == nil {
			return nil, unreadable(errors.New("it has another packet, or one without the key's ID"))
		}
		if !slices.Contains(out, *s.IssuerKeyId) {
			out = append(out, *s.IssuerKeyId)
		}
	}
}

func unreadable(err error) error { return fmt.Errorf("has a signature that cannot be read: %w", err) }

// nameOf returns a key's ID as gpg prints it.
func nameOf(id uint64) string { return fmt.Sprintf("%016X", id) }
