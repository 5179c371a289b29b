package proxy

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/causeway"
)

// Finding S9: of /a/, a rule meant /a/ alone and a binding meant /a alone.
func TestFindingS9OneReadingOfGlobs(t *testing.T) {
	w := newWorld(t)
	up := w.serve("443", nil, "api.good.test")
	for _, c := range []struct {
		glob    string
		in, out []string
	}{
		{"/a/", []string{"/a/"}, []string{"/a", "/a/b", "/"}},
		{"/a", []string{"/a", "/%61"}, []string{"/a/", "/a/b"}},
		{"/a/*", []string{"/a/b"}, []string{"/a/", "/a", "/a/b/"}},
		{"/a/**", []string{"/a", "/a/", "/a/b", "/a/b/"}, []string{"/ab", "/"}},
		{"/", []string{"/"}, []string{"/a"}},
		{"/x*y/*", []string{"/xy/z", "/xaby/z"}, []string{"/xa/z", "/xyz/"}},
	} {
		b := w.box(strings.Replace(boundHost, "rules: [{do: allow}]}\n    - {host: ws", `rules: [{paths: ["`+c.glob+`"], do: allow}]}`+"\n    - {host: ws", 1), func(to *Config) {
			s := token("api.good.test")
			s.Paths = []string{c.glob}
			to.Secrets = []causeway.Secret{s}
		})
		for _, path := range append(c.in, c.out...) {
			code, _ := b.get("https://api.good.test" + path)
			var auth string
			if code == 200 {
				auth = up.log()[len(up.log())-1].Auth
			}
			if in := strings.Contains("\n"+strings.Join(c.in, "\n")+"\n", "\n"+path+"\n"); (code == 200) != in || (auth != "") != in {
				t.Errorf("%s, %s: %d, %q", c.glob, path, code, auth)
			}
		}
		// The binding alone, where the rule allows all.
		b = w.box(boundHost, func(to *Config) {
			s := token("api.good.test")
			s.Paths = []string{c.glob}
			to.Secrets = []causeway.Secret{s}
		})
		for _, path := range append(c.in, c.out...) {
			b.get("https://api.good.test" + path)
			in := strings.Contains("\n"+strings.Join(c.in, "\n")+"\n", "\n"+path+"\n")
			if got := up.log()[len(up.log())-1].Auth; (got != "") != in {
				t.Errorf("the binding %s, %s: %q", c.glob, path, got)
			}
		}
	}
}
