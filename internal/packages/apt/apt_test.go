package apt

import (
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/keyring"
)

func TestParseFindsKindAndName(t *testing.T) {
	p := New(time.Now, noKeys{})
	for path, want := range map[string]packages.Target{
		"/debian/dists/bookworm/InRelease":                         {Kind: packages.Document, Name: "dists/bookworm", Shared: true},
		"/debian/dists/bookworm/Release":                           {},
		"/debian/dists/bookworm/main/binary-amd64/Packages.xz":     {Kind: packages.OfFile, Name: "dists/bookworm", Shared: true},
		"/debian/pool/main/h/hello/hello_2.10-3_amd64.deb":         {Kind: packages.OfFile, Name: "hello"},
		"/debian/pool/main/g/g/g++_4%3a12_amd64.deb":               {Kind: packages.OfFile, Name: "g++"},
		"/debian/pool/main/h/hello/hello_2.10-3.dsc":               {},
		"/debian/dists/../pool/main/h/hello/hello_2.10_amd64.deb":  {},
		"/debian/dists//InRelease":                                 {},
		"/debian/project/trace":                                    {},
		"/%zz":                                                     {},
		"/debian/pool/main/h/hello/../../../x_1_amd64.deb":         {},
		"/debian/dists/bookworm/main/binary-amd64/%2e%2e/Packages": {},
	} {
		got := p.Parse("http://r.test", path)
		if got.Kind != want.Kind || got.Name != want.Name || got.Shared != want.Shared {
			t.Errorf("Parse(%q): got %+v, want %+v", path, got, want)
		}
	}
}

// noKeys is a keyring without keys.
type noKeys struct{}

func (noKeys) Keys() (keyring.Keys, error) { return keyring.Keys{}, nil }

func TestListWithTwoDigestsOfOneFileIsRejected(t *testing.T) {
	entry := func(sum string) string {
		return "Package: a\nVersion: 1\nFilename: pool/a_1_all.deb\nSize: 3\nSHA256: " + sum + "\n\n"
	}
	const one, two = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae", "fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9"
	if x, err := readIndex("", []byte(entry(one)+entry(one))); err != nil || x.byPath["pool/a_1_all.deb"].version != "1" {
		t.Errorf("got %+v (%v), want one package", x, err)
	}
	if _, err := readIndex("", []byte(entry(one)+entry(two))); err == nil {
		t.Error("a list with two digests of one file was accepted")
	}
}

func FuzzReadIndex(f *testing.F) {
	f.Add("", []byte("Package: a\nVersion: 1\nFilename: pool/a_1_all.deb\nSize: 3\nSHA256: 00\n"))
	f.Add(".xz", []byte("\xfd7zXZ\x00"))
	f.Add(".gz", []byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, ending string, text []byte) {
		x, err := readIndex(ending, text)
		if err != nil {
			return
		}
		for path, e := range x.byPath {
			if e.name == "" || e.version == "" {
				t.Errorf("%q has the package %s without a name or version", text, path)
			}
		}
	})
}

func FuzzParseRelease(f *testing.F) {
	f.Add([]byte("Codename: bookworm\nDate: Sat, 01 Jan 2026 00:00:00 UTC\nSHA256:\n 00 1 main/binary-amd64/Packages\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, err := ParseRelease(text, "bookworm", time.Now()); err == nil {
			for name := range r.Files {
				if name == "" {
					t.Errorf("%q names a file without a name", text)
				}
			}
		}
	})
}
