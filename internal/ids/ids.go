// Package ids owns the creation of identifiers and tokens, and the format of a sandbox's ID.
package ids

import (
	"crypto/rand"

	"github.com/crannog/crannog/internal/fault"
)

const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"

// length is the length of an identifier after its prefix: 98 bits.
const length = 19

// New returns a new unique identifier: a prefix for its kind, and 19 letters and digits.
func New(prefix string) string { return prefix + random(length) }

// NewToken returns a secret of 40 random letters and digits (206 bits).
func NewToken() string { return random(40) }

// NewUUID returns the bytes of a random UUID, version 4.
func NewUUID() (id [16]byte) {
	rand.Read(id[:]) // never fails: the runtime ends the program instead
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

// random draws each character with equal probability. It skips a byte of 252 or more, which would
// favour the first letters.
func random(n int) string {
	out := make([]byte, 0, n)
	var buf [64]byte
	for {
		rand.Read(buf[:]) // never fails: the runtime ends the program instead
		for _, b := range buf {
			if int(b) >= 256/len(alphabet)*len(alphabet) {
				continue
			}
			if out = append(out, alphabet[int(b)%len(alphabet)]); len(out) == n {
				return string(out)
			}
		}
	}
}

// longestSandbox is the maximum length of a sandbox's ID.
const longestSandbox = 40

// ValidSandbox reports whether id has the format of a sandbox's ID: 1 to 40 characters of a-z and
// 0-9. Such IDs are parts of paths and names in many places, and "../" would lead out of a
// directory.
func ValidSandbox(id string) bool {
	if len(id) == 0 || len(id) > longestSandbox {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// CheckSandbox returns an error if ValidSandbox reports false for id.
func CheckSandbox(id string) error {
	if ValidSandbox(id) {
		return nil
	}
	return fault.Newf(fault.Invalid, "invalid_id", "sandbox ID %q is not 1 to 40 characters of a-z and 0-9", id)
}
