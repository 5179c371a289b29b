package files

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/url"
	"time"

	"github.com/crannog/crannog/internal/guest/signature"
)

// Errors of signatures. Clients compare these texts.
var (
	errMissing = errors.New("missing signature query parameter")
	errInvalid = errors.New("invalid signature")
	errExpired = errors.New("signature is already expired")
)

// checkSignature checks the signature of a URL. It checks the expiration only if the signature is
// valid, so that a caller without a valid signature learns nothing else.
func checkSignature(query url.Values, op signature.Op, token string, now time.Time) error {
	given := query.Get("signature")
	if given == "" {
		return errMissing
	}
	expires, err := signature.ParseExpiration(query.Get("signature_expiration"))
	if err != nil || !signature.Verify(given, query.Get("path"), op, query.Get("username"), token, expires) {
		return errInvalid
	}
	if signature.Expired(expires, now.Unix()) {
		return errExpired
	}
	return nil
}

// equal compares in constant time, so that timing does not reveal a correct prefix. An empty token
// matches nothing.
func equal(given, token string) bool {
	x, y := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(token))
	return token != "" && subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
