package changeset_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
)

// fixedSource is a sandbox with a fixed archive of its files.
type fixedSource struct {
	changeset.Source
	data []byte
}

func (b fixedSource) Pack(context.Context, changeset.PackRequest) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(b.data)), nil
}

// Replaced contents are returned in the order of the request. The rest of the archive is checked as
// without replacements.
func TestReplacePack(t *testing.T) {
	a, c := regular("a", "AA"), regular("c", "CC")
	for what, tt := range map[string]struct {
		data []byte
		want []string
		code string
	}{
		"all":                     {archive(t, a, c, endMember("2")), []string{"a=AA", "b=own", "c=CC", "d=own"}, ""},
		"one is missing":          {archive(t, c, endMember("1")), []string{"b=own", "c=CC", "d=own"}, ""},
		"a replaced file":         {archive(t, a, regular("b", "BB"), endMember("2")), nil, "pack_malformed"},
		"a file not requested":    {archive(t, a, regular("x", "XX"), endMember("2")), nil, "pack_malformed"},
		"another order":           {archive(t, c, a, endMember("2")), nil, "pack_malformed"},
		"an end with a wrong sum": {archive(t, a, c, endMember("1")), nil, "pack_malformed"},
		"a file after the end":    {archive(t, a, endMember("1"), c), nil, "pack_malformed"},
		"no end":                  {archive(t, a, c), nil, "pack_cut"},
	} {
		own := map[string][]byte{"b": []byte("own"), "d": []byte("own")}
		source := changeset.Replace(fixedSource{data: tt.data}, "/w", own)
		r, err := source.Pack(t.Context(), changeset.PackRequest{Dir: "/w", Paths: [][]byte{[]byte("a"), []byte("b"), []byte("c"), []byte("d")}, FileBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		in := tar.NewReader(r)
		for {
			h, err := in.Next()
			if err != nil {
				if fault.CodeOf(err) != tt.code {
					t.Errorf("%s: error %v, want code %q", what, err, tt.code)
				}
				break
			}
			if h.Typeflag == tar.TypeXGlobalHeader {
				if tt.code != "" {
					t.Errorf("%s: got a complete archive, want code %q", what, tt.code)
				}
				break
			}
			text, err := io.ReadAll(in)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, h.Name+"="+string(text))
		}
		if tt.code == "" && !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", what, got, tt.want)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
