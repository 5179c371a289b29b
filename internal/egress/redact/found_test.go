package redact_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/redact"
)

// Found names each value once, in any of its forms, and changes nothing of the text.
func TestFound(t *testing.T) {
	r := known(t, redact.Options{})
	encoded := base64.StdEncoding.EncodeToString([]byte(dbPass))
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing":      {"ordinary text", nil},
		"empty":        {"", nil},
		"one":          {"x " + apiKey + " y", []string{"API"}},
		"twice":        {apiKey + "\n" + apiKey, []string{"API"}},
		"both":         {dbPass + " then " + apiKey, []string{"DB", "API"}},
		"another form": {"Basic " + encoded, []string{"DB"}},
		"half of it":   {apiKey[:len(apiKey)/2] + " and more", nil},
	} {
		// Room behind the text, into which a careless scan would write.
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
		t.Errorf("without values: %v", got)
	}
}
