package redact_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/redact"
)

// Found returns the name of each value once, in any of its forms, and does not change the text.
func TestFoundReturnsNamesOnce(t *testing.T) {
	r := newRedactor(t, redact.Options{})
	encoded := base64.StdEncoding.EncodeToString([]byte(dbPass))
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing":         {"ordinary text", nil},
		"empty":           {"", nil},
		"one":             {"x " + apiKey + " y", []string{"API"}},
		"twice":           {apiKey + "\n" + apiKey, []string{"API"}},
		"both":            {dbPass + " then " + apiKey, []string{"DB", "API"}},
		"another form":    {"Basic " + encoded, []string{"DB"}},
		"half of a value": {apiKey[:len(apiKey)/2] + " and more", nil},
	} {
		// The capacity beyond the text shows whether the scan writes past the end.
		text := append(make([]byte, 0, len(c.text)+100), c.text...)
		if got := r.Found(text); !slices.Equal(got, c.want) {
			t.Errorf("%s: found %v, want %v", name, got, c.want)
		}
		if string(text) != c.text || strings.Trim(string(text[:cap(text)][len(text):]), "\x00") != "" {
			t.Errorf("%s: the text changed", name)
		}
	}
	var none *redact.Redactor
	if got := none.Found([]byte(apiKey)); got != nil {
		t.Errorf("the nil Redactor found %v, want nothing", got)
	}
}
