package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/redact"
)

// Finding S6 (docs/internals/regressions.md): a value in a header name is found in each of its
// forms and in any case.
func TestFindingS6InNameFindsValues(t *testing.T) {
	const key = "sk_Canary-4f9A8b7C6d5e4F3a"
	r, err := redact.New([]redact.Value{{Name: "K", Data: []byte(key)}}, redact.Options{SameLength: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{key, hex.EncodeToString([]byte(key)), base64.RawURLEncoding.EncodeToString([]byte("x" + key)), key[:12]} {
		for _, name := range []string{form, strings.ToLower(form), strings.ToUpper(form), http.CanonicalHeaderKey(form), "X-Key-" + form, http.TrailerPrefix + form} {
			if !r.InName(name) {
				t.Errorf("InName(%q) is false, want true", name)
			}
			if form != key[:12] && !r.InName(name+"-End") {
				t.Errorf("InName(%q) is false, want true", name+"-End")
			}
		}
	}
	for _, name := range []string{"", "Content-Type", "X-4f9a8b7", "Sk_canary-4f9-End"} {
		if r.InName(name) {
			t.Errorf("InName(%q) is true, want false", name)
		}
	}
	if (*redact.Redactor)(nil).InName(key) {
		t.Error("InName of the nil Redactor is true, want false")
	}
}
