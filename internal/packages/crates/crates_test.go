package crates

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/packages"
)

func TestParseFindsKindNameAndVersion(t *testing.T) {
	for path, want := range map[string]packages.Target{
		"/config.json":                     {Kind: packages.Service},
		"/se/rd/serde":                     {Kind: packages.Document, Name: "serde"},
		"/3/a/abc":                         {Kind: packages.Document, Name: "abc"},
		"/1/a":                             {Kind: packages.Document, Name: "a"},
		"/2/ab":                            {Kind: packages.Document, Name: "ab"},
		"/ab/cd/serde":                     {},
		"/crates/serde/serde-1.0.0.crate":  {Kind: packages.OfFile, Name: "serde", Version: "1.0.0"},
		"/crates/serde/1.0.0%2Bb/download": {Kind: packages.OfFile, Name: "serde", Version: "1.0.0+b"},
		"/crates/serde/other-1.0.0.crate":  {},
		"/crates/../serde/1.0.0/download":  {},
		"/api/v1/crates?q=a":               {},
		"/%zz":                             {},
	} {
		got := Protocol{}.Parse("https://r.test", path)
		if got.Kind != want.Kind || got.Name != want.Name || got.Version != want.Version {
			t.Errorf("Parse(%q): got %+v, want %+v", path, got, want)
		}
	}
}

func TestIndexOfAnotherCrateIsRejected(t *testing.T) {
	const sum = `"cksum":"2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"`
	if lines, err := readIndex("a", []byte(`{"name":"a","vers":"1.0.0",`+sum+`}`)); err != nil || len(lines) != 1 || lines[0].about.Digest.Algorithm != "sha256" {
		t.Errorf("got %+v (%v), want one version", lines, err)
	}
	if _, err := readIndex("a", []byte(`{"name":"b","vers":"1.0.0",`+sum+`}`)); err == nil {
		t.Error("the index of another crate was accepted")
	}
}

func FuzzReadIndex(f *testing.F) {
	f.Add("serde", []byte(`{"name":"serde","vers":"1.0.0","cksum":"00","pubtime":"2020-01-01T00:00:00Z"}`+"\n"))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		lines, err := readIndex(name, text)
		for _, l := range lines {
			if err == nil && (l.version == "" || strings.Contains(string(l.text), "\n")) {
				t.Errorf("%q has the version %+v", text, l)
			}
		}
	})
}
