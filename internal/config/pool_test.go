package config

import (
	"slices"
	"testing"
)

func TestParsePool(t *testing.T) {
	for text, want := range map[string]Pool{
		"auto": {On: true}, "off": {}, "0": {}, "512m": {On: true, Bytes: 512 << 20}, "2g": {On: true, Bytes: 2 << 30},
	} {
		got, err := parsePool(text)
		if err != nil || got != want {
			t.Errorf("parsePool(%q): got %+v, %v; want %+v", text, got, err, want)
		}
		if again, err := parsePool(got.String()); err != nil || again != want {
			t.Errorf("%s is shown as %s: %+v, %v", text, got, again, err)
		}
	}
	// Every value has a limit: none is accepted that could mean unlimited.
	for _, text := range []string{"", "on", "unlimited", "-1", "1k", "31m", "auto "} {
		if got, err := parsePool(text); err == nil {
			t.Errorf("%q is parsed as %+v", text, got)
		}
	}
}

func TestParseLanguages(t *testing.T) {
	for text, want := range map[string]Languages{
		"python": {"python"}, "javascript": {"javascript"}, "python,javascript": {"python", "javascript"}, "javascript, python": {"javascript", "python"}, "none": nil,
	} {
		got, err := parseLanguages(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("parseLanguages(%q): got %v, %v; want %v", text, got, err, want)
		}
		if again, err := parseLanguages(got.String()); err != nil || !slices.Equal(again, want) {
			t.Errorf("%s is shown as %s: %v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "python,", "python,python", "python,none", "ruby", "Python", "bash"} {
		if got, err := parseLanguages(text); err == nil {
			t.Errorf("%q is parsed as %v", text, got)
		}
	}
}
