package maven

import (
	"testing"

	"github.com/crannog/crannog/internal/packages"
)

func TestParseFindsKindNameAndVersion(t *testing.T) {
	for path, want := range map[string]packages.Target{
		"/":                                     {Kind: packages.Service},
		"/maven2/org/acme/a/maven-metadata.xml": {Kind: packages.Document, Name: "org.acme:a"},
		"/maven2/org/acme/a/maven-metadata.xml.sha1":  {Kind: packages.Document, Name: "org.acme:a"},
		"/maven2/org/acme/a/1.0/a-1.0.jar":            {Kind: packages.OfFile, Name: "org.acme:a", Version: "1.0"},
		"/maven2/org/acme/a/1.0/a-1.0-sources.jar":    {Kind: packages.OfFile, Name: "org.acme:a", Version: "1.0"},
		"/repository/x/org/acme/a/1.0/a-1.0.pom.sha1": {Kind: packages.OfFile, Name: "org.acme:a", Version: "1.0"},
		"/org/acme/a/1.0/b-1.0.jar":                   {},
		"/org/acme/a/1.0-SNAPSHOT/a-1.0-SNAPSHOT.jar": {},
		"/org/acme/a/../a/1.0/a-1.0.jar":              {},
		"/%zz":                                        {},
	} {
		got := Protocol{}.Parse("https://r.test", path)
		if got.Kind != want.Kind || got.Name != want.Name || got.Version != want.Version {
			t.Errorf("Parse(%q): got %+v, want %+v", path, got, want)
		}
	}
}

func FuzzReadVersions(f *testing.F) {
	f.Add([]byte(`<metadata><groupId>org.acme</groupId><artifactId>a</artifactId><versioning><versions><version>1.0</version></versions></versioning></metadata>`))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := readVersions("org.acme:a", text)
		if err != nil {
			return
		}
		left, err := v.without(nil)
		if err != nil {
			t.Fatalf("%q cannot be written: %v", text, err)
		}
		if _, err := readVersions("org.acme:a", left); err != nil {
			t.Errorf("%q is written as %q, which cannot be read: %v", text, left, err)
		}
	})
}
