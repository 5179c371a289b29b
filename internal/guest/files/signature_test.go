package files

import (
	"errors"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/guest/signature"
)

const secret = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"

var noon = time.Unix(1_000_000, 0)

// The signature is one that E2B clients compute.
func TestClientSignatureIsAccepted(t *testing.T) {
	q := url.Values{"path": {"hello.txt"}, "username": {"user"}, "signature": {"v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E"}}
	if err := checkSignature(q, signature.Read, secret, noon); err != nil {
		t.Error(err)
	}
	if err := checkSignature(q, signature.Write, secret, noon); !errors.Is(err, errInvalid) {
		t.Errorf("signature for another operation: got %v, want errInvalid", err)
	}
	if err := checkSignature(q, signature.Read, "", noon); !errors.Is(err, errInvalid) {
		t.Errorf("signature without a token: got %v, want errInvalid", err)
	}
}

func TestSignatureExpires(t *testing.T) {
	for expires, want := range map[string]error{
		"1000000": nil, "1000001": nil, "999999": errExpired, "-1": errInvalid, "0": errInvalid,
		"soon": errInvalid, "1e9": errInvalid, "99999999999999999999": errInvalid,
	} {
		end, _ := strconv.ParseInt(expires, 10, 64) // malformed numbers are rejected before this value matters
		q := url.Values{"path": {"f"}, "signature": {signature.Sign("f", signature.Read, "", secret, end)}, "signature_expiration": {expires}}
		if err := checkSignature(q, signature.Read, secret, noon); !errors.Is(err, want) {
			t.Errorf("expiration %s: got %v, want %v", expires, err, want)
		}
	}
}

// FuzzCheckSignature checks that only queries are accepted that were signed with the token.
func FuzzCheckSignature(f *testing.F) {
	good := signature.Sign("p", signature.Read, "u", secret, 0)
	f.Add("p", "u", good, "")
	f.Add("p:read", "u", good, "")
	f.Add("", "", "v1_", "1000001")
	f.Add("p", "u:"+secret, "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E", "0")
	f.Fuzz(func(t *testing.T, path, user, given, expires string) {
		q := url.Values{"path": {path}, "username": {user}, "signature": {given}, "signature_expiration": {expires}}
		if checkSignature(q, signature.Read, secret, noon) != nil {
			return
		}
		var end int64
		if expires != "" {
			var err error
			if end, err = strconv.ParseInt(expires, 10, 64); err != nil || end < noon.Unix() {
				t.Errorf("accepted a signature that expired at %q", expires)
			}
		}
		if given != signature.Sign(path, signature.Read, user, secret, end) {
			t.Errorf("accepted the signature %q for path %q", given, path)
		}
	})
}
