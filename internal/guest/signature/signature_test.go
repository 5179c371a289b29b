package signature_test

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/guest/signature"
)

const token = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"

func TestSignKnownVector(t *testing.T) {
	const want = "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E"
	if got := signature.Sign("hello.txt", signature.Read, "user", token, 0); got != want {
		t.Fatalf("Sign: got %q, want %q", got, want)
	}
}

func TestVerifyBindsEveryPart(t *testing.T) {
	good := signature.Sign("a.txt", signature.Read, "user", token, 100)
	if !signature.Verify(good, "a.txt", signature.Read, "user", token, 100) {
		t.Fatal("the signature does not verify")
	}
	for name, ok := range map[string]bool{
		"path":          signature.Verify(good, "b.txt", signature.Read, "user", token, 100),
		"op":            signature.Verify(good, "a.txt", signature.Write, "user", token, 100),
		"user":          signature.Verify(good, "a.txt", signature.Read, "root", token, 100),
		"token":         signature.Verify(good, "a.txt", signature.Read, "user", token+"x", 100),
		"expiration":    signature.Verify(good, "a.txt", signature.Read, "user", token, 101),
		"no expiration": signature.Verify(good, "a.txt", signature.Read, "user", token, 0),
		"truncated":     signature.Verify(good[:len(good)-1], "a.txt", signature.Read, "user", token, 100),
		"empty":         signature.Verify("", "a.txt", signature.Read, "user", token, 100),
		"no version":    signature.Verify(strings.TrimPrefix(good, "v1_"), "a.txt", signature.Read, "user", token, 100),
	} {
		if ok {
			t.Errorf("%s: the signature verifies", name)
		}
	}
}

func TestVerifyWithoutTokenFails(t *testing.T) {
	got := signature.Sign("a", signature.Read, "", "", 0)
	if signature.Verify(got, "a", signature.Read, "", "", 0) {
		t.Fatal("a hash over an empty token verifies")
	}
}

func TestExpired(t *testing.T) {
	for _, c := range []struct {
		expires, now int64
		want         bool
	}{{0, 50, false}, {49, 50, true}, {50, 50, false}, {51, 50, false}} {
		if got := signature.Expired(c.expires, c.now); got != c.want {
			t.Errorf("Expired(%d, %d): got %v, want %v", c.expires, c.now, got, c.want)
		}
	}
}

func TestParseExpiration(t *testing.T) {
	if n, err := signature.ParseExpiration(""); n != 0 || err != nil {
		t.Errorf("ParseExpiration of nothing: got %d, %v, want 0", n, err)
	}
	if n, err := signature.ParseExpiration("1700000000"); n != 1700000000 || err != nil {
		t.Errorf("ParseExpiration: got %d, %v, want 1700000000", n, err)
	}
	for _, bad := range []string{"0", "-1", "x", "1.5", "99999999999999999999", " 1"} {
		if _, err := signature.ParseExpiration(bad); err == nil {
			t.Errorf("ParseExpiration(%q): got no error", bad)
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add("hello.txt", "user", token, int64(0), "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E")
	f.Add("", "", token, int64(-1), "")
	f.Fuzz(func(t *testing.T, path, user, secret string, expires int64, guess string) {
		sig := signature.Sign(path, signature.Write, user, secret, expires)
		if got := signature.Verify(sig, path, signature.Write, user, secret, expires); got != (secret != "") {
			t.Fatalf("Verify of the signature: got %v", got)
		}
		if guess != sig && signature.Verify(guess, path, signature.Write, user, secret, expires) {
			t.Fatalf("Verify accepts %q", guess)
		}
	})
}
