package packages

import (
	"crypto/sha1" //nolint:gosec // old versions on npm have no other digest
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"strings"
)

// Digest is a digest that a registry published. The zero Digest matches nothing.
type Digest struct {
	Algorithm string // sha1, sha256, sha384, sha512 or h1
	Sum       string // the raw bytes
}

// algorithms are ordered from the strongest to the weakest. ParseIntegrity relies on the order.
var algorithms = []struct {
	name string
	size int
	make func() hash.Hash
}{
	{"sha512", sha512.Size, sha512.New}, {"sha384", sha512.Size384, sha512.New384},
	{"sha256", sha256.Size, sha256.New}, {"sha1", sha1.Size, sha1.New},
}

// ParseIntegrity reads Subresource Integrity, as in npm's dist.integrity, and returns the strongest
// digest. It returns false if no digest has a known algorithm.
func ParseIntegrity(s string) (Digest, bool) {
	if len(s) > 4096 {
		return Digest{}, false
	}
	for _, a := range algorithms {
		for field := range strings.FieldsSeq(s) {
			text, ok := strings.CutPrefix(field, a.name+"-")
			if !ok {
				continue
			}
			text, _, _ = strings.Cut(text, "?")
			if sum, err := base64.StdEncoding.DecodeString(text); err == nil && len(sum) == a.size {
				return Digest{a.name, string(sum)}, true
			}
		}
	}
	return Digest{}, false
}

// HexDigest reads a digest of a named algorithm in hexadecimal.
func HexDigest(algorithm, text string) (Digest, bool) {
	for _, a := range algorithms {
		if a.name != algorithm {
			continue
		}
		if sum, err := hex.DecodeString(text); err == nil && len(sum) == a.size {
			return Digest{algorithm, string(sum)}, true
		}
	}
	return Digest{}, false
}

// H1 is Go's own algorithm: a SHA-256 over the names and the SHA-256 of a module's files. It cannot
// be computed as a hash of the archive's bytes.
const H1 = "h1"

// ParseDigest reads a digest in the format of String.
func ParseDigest(s string) (Digest, bool) {
	if text, ok := strings.CutPrefix(s, H1+":"); ok {
		sum, err := base64.StdEncoding.DecodeString(text)
		return Digest{H1, string(sum)}, err == nil && len(sum) == sha256.Size
	}
	return ParseIntegrity(s)
}

// Strength orders algorithms: a stronger one has a greater strength. Unknown ones have zero.
func (d Digest) Strength() int {
	if d.Algorithm == H1 {
		return 1
	}
	for i, a := range algorithms {
		if a.name == d.Algorithm {
			return len(algorithms) - i
		}
	}
	return 0
}

// String returns the digest in the format of Subresource Integrity, or of go.sum for H1.
func (d Digest) String() string {
	switch d.Algorithm {
	case "":
		return ""
	case H1:
		return H1 + ":" + base64.StdEncoding.EncodeToString([]byte(d.Sum))
	}
	return d.Algorithm + "-" + base64.StdEncoding.EncodeToString([]byte(d.Sum))
}

// Hash returns a new hash of the digest's algorithm, or nil for the zero Digest and for H1.
func (d Digest) Hash() hash.Hash {
	for _, a := range algorithms {
		if a.name == d.Algorithm {
			return a.make()
		}
	}
	return nil
}

// Matches reports whether the digest is equal to sum, which has the digest's algorithm.
func (d Digest) Matches(sum []byte) bool {
	return d.Algorithm != "" && len(sum) > 0 && subtle.ConstantTimeCompare([]byte(d.Sum), sum) == 1
}
