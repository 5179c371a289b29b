package apt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/clearsign"

	"github.com/crannog/crannog/internal/packages/keyring"
)

// Limits of a signed list.
const (
	maxRelease    = 16 << 20
	maxSignatures = 64 << 10
)

// signedList is a list with its signatures (InRelease).
type signedList struct {
	text       []byte // what the signatures are about, as it is parsed
	canonical  []byte // the same text in the form of which signatures have the digest
	signatures []byte // packets
}

// splitSigned splits a list from its signatures. The texts of its errors continue "the list of index
// files".
//
// Text before, after or between is rejected, because the list is passed on as it is: an attacker
// could wrap a genuine list in another one, and a client that does not look for the signature would
// read that one.
func splitSigned(document []byte) (signedList, error) {
	if len(document) > maxRelease {
		return signedList{}, fmt.Errorf("is larger than %d bytes", maxRelease)
	}
	if !bytes.Contains(document, []byte("-----BEGIN PGP SIGNATURE-----")) {
		return signedList{}, errors.New("has no signature")
	}
	if !bytes.HasPrefix(document, []byte("-----BEGIN PGP SIGNED MESSAGE-----")) {
		return signedList{}, errors.New("has text before the signed text")
	}
	block, rest := clearsign.Decode(document)
	if block == nil {
		return signedList{}, errors.New("has no signature that can be read")
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return signedList{}, errors.New("has text after the signed text")
	}
	for name := range block.ArmoredSignature.Header {
		if name != "Version" && name != "Comment" {
			return signedList{}, fmt.Errorf("has the line %.50q in its signature", name)
		}
	}
	signatures, err := io.ReadAll(io.LimitReader(block.ArmoredSignature.Body, maxSignatures+1))
	switch {
	case err != nil:
		return signedList{}, fmt.Errorf("has a signature that cannot be read: %w", err)
	case len(signatures) > maxSignatures:
		return signedList{}, fmt.Errorf("has signatures of more than %d bytes", maxSignatures)
	}
	return signedList{block.Plaintext, block.Bytes, signatures}, nil
}

// SignedText returns the text of a list that one of the keys has signed. The texts of its errors
// continue "the list of index files". The error is a keyring.UntrustedError if only the key or the
// kind of the signature is not accepted.
func SignedText(document []byte, keys keyring.Keys, now time.Time) ([]byte, error) {
	list, err := splitSigned(document)
	if err != nil {
		return nil, err
	}
	if err := keys.Verify(list.canonical, list.signatures, now); err != nil {
		return nil, err
	}
	return list.text, nil
}
