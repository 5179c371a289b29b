package gomod

import (
	"archive/zip"
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/packages"
)

func TestParseFindsKindNameAndVersion(t *testing.T) {
	for path, want := range map[string]packages.Target{
		"/golang.org/x/mod/@v/list":                                {Kind: packages.Document, Name: "golang.org/x/mod"},
		"/golang.org/x/mod/@latest":                                {Kind: packages.Document, Name: "golang.org/x/mod"},
		"/golang.org/x/mod/@v/v0.1.0.zip":                          {Kind: packages.OfFile, Name: "golang.org/x/mod", Version: "v0.1.0"},
		"/golang.org/x/mod/@v/master.info":                         {Kind: packages.OfFile, Name: "golang.org/x/mod"},
		"/github.com/!burnt!sushi/toml/@v/v1.mod":                  {},
		"/github.com/!burnt!sushi/toml/@v/v1.0.0+incompatible.mod": {Kind: packages.OfFile, Name: "github.com/BurntSushi/toml", Version: "v1.0.0+incompatible"},
		"/golang.org/x/mod/@v/master.zip":                          {},
		"/golang.org/x/mod/@v/v0.1.0.ziphash":                      {},
		"/golang.org/x/mod/@v/../v0.1.0.zip":                       {},
		"/../etc/@v/list":                                          {},
		"/Golang.org/x/mod/@v/list":                                {},
		"/sumdb/sum.golang.org/supported":                          {Kind: packages.Service},
		"/golang.org/x/mod":                                        {},
		"/%zz":                                                     {},
	} {
		got := New().Parse("https://r.test", path)
		if got.Kind != want.Kind || got.Name != want.Name || got.Version != want.Version {
			t.Errorf("Parse(%q): got %+v, want %+v", path, got, want)
		}
	}
}

func TestZipCheckRejectsAmbiguousArchives(t *testing.T) {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, text := range []string{"good", "evil"} {
		w, err := z.Create("a@v1.0.0/a.go")
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	err := zipCheck("h1:x")(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if f, ok := errors.AsType[*packages.Failure](err); !ok || f.Rule != packages.RuleIntegrity || !strings.Contains(f.Reason, "two files") {
		t.Errorf("two files of one name: got %v, want a refusal", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("/golang.org/x/mod/@v/v0.1.0.zip")
	f.Add("/github.com/!burnt!sushi/toml/@latest")
	p := New()
	f.Fuzz(func(t *testing.T, path string) {
		got := p.Parse("https://r.test", path)
		if got.Kind != packages.OfFile {
			return
		}
		if got.Version != "" {
			if _, err := versionURL(got, got.Version, ".zip"); err != nil {
				t.Errorf("Parse(%q): its version has no URL: %v", path, err)
			}
		}
	})
}

func FuzzInfo(f *testing.F) {
	f.Add([]byte(`{"Version":"v1.0.0","Time":"2020-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if i, err := infoOf(text); err == nil && i.Version == "" {
			t.Errorf("%q has no version", text)
		}
	})
}
