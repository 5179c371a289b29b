package sandbox_test

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

func TestParseReference(t *testing.T) {
	type ref = sandbox.Reference
	for in, want := range map[string]ref{
		"base":                    {Name: "base", Tag: "default"},
		"  Base \n":               {Name: "base", Tag: "default"},
		"base:v1.2":               {Name: "base", Tag: "v1.2"},
		"team/my_tmpl-1:x":        {Namespace: "team", Name: "my_tmpl-1", Tag: "x"},
		"code-interpreter-v1":     {Name: "code-interpreter-v1", Tag: "default"},
		"abcdefghij0123456789":    {Name: "abcdefghij0123456789", Tag: "default"},
		"base:default":            {Name: "base", Tag: "default"},
		"base:0123-not-a-uuid-ok": {Name: "base", Tag: "0123-not-a-uuid-ok"},
	} {
		got, err := sandbox.ParseReference(in)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", " ", ":", "base:", ":v", "a/b/c", "/base", "base/", "..", "../x", "a b", "a.b", "bäse", "base:v:w", "base\x00",
		"base:3f2504e0-4f89-11d3-9a0c-0305e82c3301", strings.Repeat("a", 257), "a:" + strings.Repeat("b", 255),
	} {
		got, err := sandbox.ParseReference(in)
		if fault.KindOf(err) != fault.Invalid || fault.CodeOf(err) != "template_reference_invalid" {
			t.Errorf("%q: got %+v, %v; want template_reference_invalid", in, got, err)
		}
	}
}

// A parsed reference is written so that it parses to the same value, and has no characters that a
// path or a query could misread.
func FuzzParseReference(f *testing.F) {
	for _, seed := range []string{"base", "team/base:v1", "A/B:C", "a:b:c", "../..", "base:3f2504e0-4f89-11d3-9a0c-0305e82c3301", "ſ", "K"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		ref, err := sandbox.ParseReference(in)
		if err != nil {
			return
		}
		again, err := sandbox.ParseReference(ref.String())
		if err != nil || again != ref {
			t.Errorf("%q parses to %+v, and that to %+v, %v", in, ref, again, err)
		}
		for _, part := range []string{ref.Name, ref.Tag} {
			if part == "" || strings.ContainsAny(part, "/:\\ \x00%&?#") {
				t.Errorf("%q parses to %+v", in, ref)
			}
		}
	})
}
