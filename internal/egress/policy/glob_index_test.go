package policy

import (
	"strings"
	"testing"
)

// FuzzGlobIndex compares a globIndex with the globs one by one.
func FuzzGlobIndex(f *testing.F) {
	for _, seed := range [][2]string{
		{"**/.env **/.ssh/** **/a/b **/*.pem /w/**", "/w/.ENV"}, {"**/.env", "/.env/x"}, {"**/.ssh/**", "/.ssh"}, {"**/.ssh/**", "/a/.ssh/b/c"},
		{"**/a", "/a/"}, {"**/a/**", "a//b"}, {"**/**", "/"}, {"**/", "/x/"}, {"**/ /**", "/ /"}, {"**/\u212a", "/k"}, {"**", ""}, {"**/a", "//a"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, patterns, path string) {
		var globs []glob
		want := false
		for p := range strings.FieldsSeq(patterns) {
			g := newGlob(p)
			globs = append(globs, *g)
			want = want || g.match(path, true)
		}
		if got := newGlobIndex(globs).match(path); got != want {
			t.Errorf("the patterns %q and the path %q: match is %t, want %t", patterns, path, got, want)
		}
	})
}
