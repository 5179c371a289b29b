package session

import (
	"encoding/base64"
	"strings"
	"testing"
)

// FuzzSecret checks that a secret has exactly one form: two texts never mean the same secret.
func FuzzSecret(f *testing.F) {
	good, _ := newSecret()
	for _, seed := range []string{good, "", good + "=", good[:42], good + "A", "\n" + good, good[:20] + "\r\n" + good[20:], strings.Repeat("/", 43), strings.Repeat("é", 22)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, ok := hashOf(text); !ok {
			return
		}
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || len(raw) != secretBytes || base64.RawURLEncoding.EncodeToString(raw) != text {
			t.Fatalf("%q is accepted, which is not the form of a secret", text)
		}
	})
}
