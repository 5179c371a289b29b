package npm

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/packages"
)

func TestParseFindsKindAndName(t *testing.T) {
	for path, want := range map[string]struct {
		kind packages.Kind
		name string
	}{
		"/":                              {packages.Service, ""},
		"/-/v1/search":                   {packages.Service, ""},
		"/left-pad":                      {packages.Document, "left-pad"},
		"/@types%2fms":                   {packages.Document, "@types/ms"},
		"/@types/ms":                     {packages.Document, "@types/ms"},
		"/left-pad/-/left-pad-1.3.0.tgz": {packages.OfFile, "left-pad"},
		"/@types/ms/-/ms-0.7.34.tgz":     {packages.OfFile, "@types/ms"},
		"/left-pad/1.3.0":                {packages.Unknown, ""},
		"/left-pad/latest":               {packages.Unknown, ""},
		"/@types%2fms/1.0.0":             {packages.Unknown, ""},
		"/.hidden":                       {packages.Unknown, ""},
		"/a/-/../../b":                   {packages.Unknown, ""},
		"/left-pad/-/":                   {packages.Unknown, ""},
		"/a%0ab":                         {packages.Unknown, ""},
		"/%zz":                           {packages.Unknown, ""},
		"/types/ms":                      {packages.Unknown, ""},
	} {
		if kind, name := Parse(path); kind != want.kind || name != want.name {
			t.Errorf("Parse(%q): got %v %q, want %v %q", path, kind, name, want.kind, want.name)
		}
	}
}

const text = `{"name":"a","dist-tags":{"latest":"2.0.0","next":"3.0.0-rc.1"},"versions":{
"1.0.0":{"dist":{"tarball":"https://r.test/a/-/a-1.0.0.tgz","shasum":"da39a3ee5e6b4b0d3255bfef95601890afd80709"}},
"1.1.0":{"dist":{"tarball":"https://r.test/a/-/a-1.1.0.tgz","integrity":"sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg=="},"scripts":{"postinstall":"x","test":"y"}},
"2.0.0":{"dist":{"tarball":"https://r.test/a/-/a-2.0.0.tgz","integrity":"sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg=="}},
"3.0.0-rc.1":{"dist":{"tarball":"https://r.test/a/-/a-3.0.0-rc.1.tgz"}}},
"time":{"created":"2020-01-01T00:00:00.000Z","1.0.0":"2020-01-01T00:00:00.000Z","1.1.0":"2021-01-01T00:00:00.000Z","2.0.0":"2022-01-01T00:00:00.000Z"}}`

func TestReadIndexReadsVersions(t *testing.T) {
	x, err := ReadIndex("a", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if x.Files["/a/-/a-1.1.0.tgz"] != "1.1.0" || len(x.Versions) != 4 {
		t.Fatalf("got %+v, want 4 versions and the file of 1.1.0", x)
	}
	if v := x.Versions["1.1.0"]; v.Digest.Algorithm != "sha512" || v.Published.Year() != 2021 || !slices.Equal(v.Scripts, []string{"postinstall"}) {
		t.Errorf("version 1.1.0: got %+v", v)
	}
	if v := x.Versions["1.0.0"]; v.Digest.Algorithm != "sha1" {
		t.Errorf("version 1.0.0: got %+v, want a sha1 digest", v)
	}
	if v := x.Versions["3.0.0-rc.1"]; v.Digest.Hash() != nil || !v.Published.IsZero() {
		t.Errorf("version 3.0.0-rc.1: got %+v, want no digest and no time", v)
	}
	if _, err := ReadIndex("b", []byte(text)); err == nil {
		t.Error("ReadIndex accepted the document of another package")
	}
}

func TestFilterRemovesVersions(t *testing.T) {
	x, err := ReadIndex("a", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out, err := Filter([]byte(text), x, func(v string) bool { return v != "2.0.0" && v != "1.0.0" })
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Versions map[string]any    `json:"versions"`
		Time     map[string]string `json:"time"`
		Tags     map[string]string `json:"dist-tags"`
	}
	if err := json.Unmarshal(out, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Versions) != 2 || d.Time["2.0.0"] != "" || d.Time["created"] == "" || d.Tags["latest"] != "1.1.0" || d.Tags["next"] != "3.0.0-rc.1" {
		t.Errorf("got %s, want the two kept versions, and latest moved to 1.1.0", out)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("/@types%2fms/-/ms-0.7.34.tgz")
	f.Add("/left-pad")
	f.Fuzz(func(t *testing.T, path string) {
		kind, name := Parse(path)
		if (kind == packages.Document || kind == packages.OfFile) != (name != "") {
			t.Errorf("Parse(%q): got kind %v and name %q", path, kind, name)
		}
		if kind == packages.Document {
			if again, same := Parse(DocumentPath(name)); again != packages.Document || same != name {
				t.Errorf("DocumentPath(%q) is parsed as %v of %q", name, again, same)
			}
		}
	})
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte(text))
	f.Add([]byte(`{"name":"a","versions":{"1":{"dist":{"tarball":"%","integrity":"sha512-"},"scripts":[]}},"time":{"1":5},"dist-tags":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		x, err := ReadIndex("a", text)
		if err != nil {
			return
		}
		out, err := Filter(text, x, func(v string) bool { return len(v)%2 == 0 })
		if err != nil {
			return
		}
		again, err := ReadIndex("a", out)
		if err != nil {
			t.Fatalf("ReadIndex of the filtered document %s: %v", out, err)
		}
		for v := range again.Versions {
			if len(v)%2 != 0 {
				t.Errorf("version %q was not removed", v)
			}
		}
	})
}
