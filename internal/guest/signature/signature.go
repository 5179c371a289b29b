// Package signature owns the signatures of file URLs: a hash over what the URL allows and the
// sandbox's access token. A signed URL can be given to people who have no token.
package signature

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strconv"
	"strings"
)

// Op is what a signed URL allows.
type Op string

// The operations that a URL can allow.
const (
	Read  Op = "read"
	Write Op = "write"
)

const version = "v1_"

// Sign returns the signature for one path. path and user are exactly as in the query, and "" if
// absent. expires is in Unix seconds. Zero means that the signature does not expire.
func Sign(path string, op Op, user, token string, expires int64) string {
	parts := []string{path, string(op), user, token}
	if expires != 0 {
		parts = append(parts, strconv.FormatInt(expires, 10))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, ":")))
	return version + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Verify reports whether got is the signature for these values. It does not check the time (see
// Expired). It compares in constant time, so that a signature cannot be guessed byte by byte. It
// returns false for an empty token, because anyone can make a hash over an empty secret.
func Verify(got, path string, op Op, user, token string, expires int64) bool {
	if token == "" {
		return false
	}
	want := Sign(path, op, user, token, expires)
	return subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

// Expired reports whether a signature has expired at the given Unix time.
func Expired(expires, now int64) bool {
	return expires != 0 && expires < now
}

// ParseExpiration parses the expiration of a query, where "" means none. A value that is not a
// positive number is an error, so that a client cannot turn a signature with an expiration into one
// without.
func ParseExpiration(value string) (int64, error) {
	if value == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0, err
	}
	if n <= 0 {
		return 0, strconv.ErrRange
	}
	return n, nil
}
