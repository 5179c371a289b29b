// Package signature owns the signatures of file URLs: a hash over what the URL allows and the
// sandbox's access token, so that a URL can be given to somebody who has no token.
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

// Sign returns the signature for one path. The path is exactly the one in the query, "" if it is
// absent, and so is the user. Expires is in Unix seconds, and zero makes a signature that does not
// expire.
func Sign(path string, op Op, user, token string, expires int64) string {
	parts := []string{path, string(op), user, token}
	if expires != 0 {
		parts = append(parts, strconv.FormatInt(expires, 10))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, ":")))
	return version + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Verify reports whether got is the signature for these values. It does not check the time: Expired
// does. The comparison takes the same time wherever the difference is, so that a signature cannot
// be guessed byte by byte. Without a token nothing verifies: everybody can make a hash over an
// empty secret.
func Verify(got, path string, op Op, user, token string, expires int64) bool {
	if token == "" {
		return false
	}
	want := Sign(path, op, user, token, expires)
	return subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

// Expired reports whether a signature's end has passed at the given Unix second.
func Expired(expires, now int64) bool {
	return expires != 0 && expires < now
}

// ParseExpiration parses the expiration of a query, where "" is none. A value that is not a
// positive number is an error, so that no client can turn an expiring signature into one without an
// end.
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
