package files_test

import (
	"errors"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/guest/files"
)

const token = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"

// The vector is what clients in use compute.
func TestSignatureVector(t *testing.T) {
	g := files.Grant{Path: "hello.txt", Operation: files.Read, Username: "user"}
	if got, want := g.Signature(token), "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCheckTime(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for expires, want := range map[string]error{
		"1000000": nil, "1000001": nil, "999999": files.ErrExpired, "-1": files.ErrExpired,
		"soon": files.ErrInvalid, "1e9": files.ErrInvalid, "99999999999999999999": files.ErrInvalid,
	} {
		g := files.Grant{Path: "f", Operation: files.Write, Expires: expires}
		q := url.Values{"signature": {g.Signature(token)}, "signature_expiration": {expires}}
		g.Expires = ""
		if err := g.Check(q, token, now); !errors.Is(err, want) {
			t.Errorf("%s: %v", expires, err)
		}
	}
}

// No query is accepted that was not signed with the token.
func FuzzCheck(f *testing.F) {
	now := time.Unix(1_000_000, 0)
	good := files.Grant{Path: "p", Operation: files.Read, Username: "u"}
	f.Add("p", "u", good.Signature(token), "")
	f.Add("p:read", "u", good.Signature(token), "")
	f.Add("", "", "v1_", "1000001")
	f.Add("p", "u:"+token, "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E", "0")
	f.Fuzz(func(t *testing.T, path, user, signature, expires string) {
		g := files.Grant{Path: path, Operation: files.Read, Username: user}
		q := url.Values{"signature": {signature}, "signature_expiration": {expires}}
		if g.Check(q, token, now) != nil {
			return
		}
		g.Expires = expires
		if signature != g.Signature(token) {
			t.Errorf("accepted %q for %+v", signature, g)
		}
		if expires != "" {
			if end, err := strconv.ParseInt(expires, 10, 64); err != nil || end < now.Unix() {
				t.Errorf("accepted after %q", expires)
			}
		}
	})
}
