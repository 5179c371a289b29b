package files

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/url"
	"strconv"
	"time"
)

// Operation is what a signed address allows.
type Operation string

const (
	Read  Operation = "read"
	Write Operation = "write"
)

// Grant is what a signature signs. Path and Username are as in the address,
// also where they are empty.
type Grant struct {
	Path      string
	Operation Operation
	Username  string
	// Expires is a Unix time in seconds as the address has it, or "".
	Expires string
}

// Errors of Check.
var (
	ErrMissing = errors.New("missing signature query parameter")
	ErrInvalid = errors.New("invalid signature")
	ErrExpired = errors.New("signature is already expired")
)

// Signature signs the grant with a sandbox's token.
func (g Grant) Signature(token string) string {
	text := g.Path + ":" + string(g.Operation) + ":" + g.Username + ":" + token
	if g.Expires != "" {
		text += ":" + g.Expires
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Check compares the signature in a query with the grant. The time counts
// only if the signature is right, so that nobody learns more than that.
func (g Grant) Check(query url.Values, token string, now time.Time) error {
	given := query.Get("signature")
	if given == "" {
		return ErrMissing
	}
	g.Expires = query.Get("signature_expiration")
	if !equal(given, g.Signature(token)) {
		return ErrInvalid
	}
	if g.Expires == "" {
		return nil
	}
	end, err := strconv.ParseInt(g.Expires, 10, 64)
	if err != nil {
		return ErrInvalid
	}
	if now.Unix() > end {
		return ErrExpired
	}
	return nil
}

// equal compares in a time that does not tell how much of a guess is right.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
