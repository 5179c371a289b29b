package pypi

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/crannog/crannog/internal/packages"
)

func TestParseFindsKindNameAndVersion(t *testing.T) {
	for path, want := range map[string]packages.Target{
		"/":                                      {Kind: packages.Service},
		"/simple/":                               {Kind: packages.Service},
		"/simple/Foo_Bar.baz/":                   {Kind: packages.Document, Name: "foo-bar-baz"},
		"/simple/foo":                            {Kind: packages.Document, Name: "foo"},
		"/simple/foo/bar/":                       {},
		"/pypi/foo/json":                         {},
		"/a/b/foo_bar-1.0.tar.gz":                {Kind: packages.OfFile, Name: "foo-bar", Version: "1.0"},
		"/a/foo-bar-1.0rc1.zip":                  {Kind: packages.OfFile, Name: "foo-bar", Version: "1.0rc1"},
		"/a/foo-1.0-py3-none-any.whl":            {Kind: packages.OfFile, Name: "foo", Version: "1.0"},
		"/a/foo-1.0-2-py3-none-any.whl.metadata": {Kind: packages.OfFile, Name: "foo", Version: "1.0"},
		"/a/foo-1.0.whl":                         {},
		"/a/../foo-1.0.tar.gz":                   {},
		"/a/foo.exe":                             {},
		"/%zz":                                   {},
	} {
		got := Protocol{}.Parse("https://r.test", path)
		if got.Kind != want.Kind || got.Name != want.Name || got.Version != want.Version {
			t.Errorf("Parse(%q): got %+v, want %+v", path, got, want)
		}
	}
}

func TestIndexHasOnlyFilesOfItsProject(t *testing.T) {
	const base = "https://r.test/simple/foo/"
	files, err := readIndex("foo", base, "text/html", []byte(`<a href="/f/foo-1.0.tar.gz#sha256=2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae" data-yanked="bad &amp; old">x</a>
<a href="/f/bar-1.0.tar.gz">foo-1.0.tar.gz</a><a>none</a>`))
	if err != nil || len(files) != 1 || files[0].url != "https://r.test/f/foo-1.0.tar.gz" || files[0].about.Digest.Algorithm != "sha256" || files[0].reason != "bad & old" {
		t.Fatalf("got %+v (%v), want only foo's file", files, err)
	}
	var out bytes.Buffer
	files[0].write(&out)
	again, err := readIndex("foo", base, "text/html", out.Bytes())
	if err != nil || len(again) != 1 || !reflect.DeepEqual(again[0], files[0]) {
		t.Errorf("the written link is read as %+v (%v), want %+v", again, err, files[0])
	}
	if _, err := readIndex("foo", base, jsonType, []byte(`{"name":"bar","files":[]}`)); err == nil {
		t.Error("the document of another project was accepted")
	}
}

func FuzzReadIndex(f *testing.F) {
	f.Add("text/html", []byte(`<a href="foo-1.0.tar.gz#sha256=00">foo</a>`))
	f.Add(jsonType, []byte(`{"name":"foo","files":[{"filename":"foo-1.0.tar.gz","url":"foo-1.0.tar.gz","yanked":true}]}`))
	f.Fuzz(func(t *testing.T, kind string, text []byte) {
		files, err := readIndex("foo", "https://r.test/simple/foo/", kind, text)
		if err != nil {
			return
		}
		for _, x := range files {
			if x.version == "" {
				t.Errorf("%q has a file without a version: %+v", text, x)
			}
		}
	})
}
