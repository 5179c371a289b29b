package e2b

import (
	"encoding/base64"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// pageToken is the position of the next page: after this row, in this order. It is opaque to
// clients. It grants no permission, because every page is filtered by the caller's key, so it needs
// no signature.
type pageToken struct {
	after     time.Time
	id        string
	ascending bool
}

const (
	tokenSeparator = "__"
	tokenAscending = "asc"
	maxToken       = 256
)

func (t pageToken) String() string {
	plain := t.after.UTC().Format(time.RFC3339Nano) + tokenSeparator + t.id
	if t.ascending {
		plain += tokenSeparator + tokenAscending
	}
	return base64.RawURLEncoding.EncodeToString([]byte(plain))
}

// parsePageToken parses a token for a list in the given order. A token of the other order is
// refused, because its page would skip or repeat rows.
func parsePageToken(s string, ascending bool) (pageToken, error) {
	if len(s) > maxToken {
		return pageToken{}, invalidToken()
	}
	plain, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(s, "="))
	if err != nil {
		return pageToken{}, invalidToken()
	}
	parts := strings.Split(string(plain), tokenSeparator)
	t := pageToken{ascending: len(parts) == 3 && parts[2] == tokenAscending}
	if len(parts) != 2 && !t.ascending {
		return pageToken{}, invalidToken()
	}
	t.id = parts[1]
	if t.after, err = time.Parse(time.RFC3339Nano, parts[0]); err != nil || !isID(t.id) {
		return pageToken{}, invalidToken()
	}
	if t.ascending != ascending {
		return pageToken{}, invalidToken()
	}
	return t, nil
}

func invalidToken() error {
	return fault.New(fault.Invalid, "next_token_invalid", "Invalid next token")
}
