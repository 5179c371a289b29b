package search

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newTree creates a directory with files.
func newTree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// find runs a search as a host does.
func find(t *testing.T, q Query) (string, End) {
	t.Helper()
	var out bytes.Buffer
	Main(q.Args()[1:], &out)
	var found []string
	end, err := Read(&out, q.Most, func(m Match) { found = append(found, fmt.Sprintf("%s:%d:%s", m.Path, m.Line, m.Text)) })
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(found, " "), end
}

func TestSearch(t *testing.T) {
	root := newTree(t, map[string]string{
		"a.go": "one\ntwo two\n\nfour", "b.txt": "two\r\n", "d/c.go": "x\ntwo", ".git/config": "two", "node_modules/m.js": "two",
		"bin": "two\x00", "e/f/g.go": "Two\n",
	})
	if err := os.Symlink("/etc", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pattern, glob string
		limit         int
		want          string
		more          bool
	}{
		{"two", "", 10, "a.go:2:two two b.txt:1:two d/c.go:2:two", false},
		{"^two$", "", 10, "b.txt:1:two d/c.go:2:two", false},
		{"(?i)two", "*.go", 10, "a.go:2:two two d/c.go:2:two e/f/g.go:1:Two", false},
		{"two", "d/**", 10, "d/c.go:2:two", false},
		{"two", "", 2, "a.go:2:two two b.txt:1:two", true},
		{"^$", "a.go", 10, "a.go:3:", false},
		{`e\stwo`, "", 10, "", false},
		{"four|x", "*.{go,js}", 10, "a.go:4:four d/c.go:1:x", false},
		{"root:", "", 10, "", false},
	} {
		got, end := find(t, Query{Pattern: c.pattern, Root: root, Glob: c.glob, Most: c.limit})
		if got != c.want || end.More != c.more {
			t.Errorf("%q in %q: got %q, %+v, want %q", c.pattern, c.glob, got, end, c.want)
		}
	}
	if got, _ := find(t, Query{Pattern: "two", Root: filepath.Join(root, "b.txt"), Most: 5}); got != "b.txt:1:two" {
		t.Errorf("single file: got %q", got)
	}
	if _, end := find(t, Query{Pattern: "(", Root: root, Most: 5}); end.Error == "" {
		t.Error("an invalid pattern was accepted")
	}
	if _, end := find(t, Query{Pattern: "a", Root: root + "/none", Most: 5}); end.Error == "" {
		t.Error("got no error for a missing directory")
	}
}

func TestGlob(t *testing.T) {
	for pattern, paths := range map[string]struct{ yes, no string }{
		"*.go":         {"a.go d/b.go", "a.gox go"},
		"src/*.go":     {"src/a.go", "src/d/a.go a.go"},
		"src/**/*.go":  {"src/a.go src/d/e/a.go", "x/src/a.go"},
		"**/test/**":   {"test/a a/test/b/c", "tests/a"},
		"{a,b}.txt":    {"a.txt d/b.txt", "c.txt"},
		"[a-c]?.x":     {"ab.x", "db.x a.x"},
		"[!a]b":        {"cb", "ab /b"},
		"a+(b)":        {"a+(b)", "aab"},
		"größe*":       {"größe1", "grosse"},
		`\*.go`:        {"*.go", "a.go"},
		"no,brace.txt": {"no,brace.txt", "no"},
	} {
		re, err := Glob(pattern)
		if err != nil {
			t.Errorf("Glob of %s: %v", pattern, err)
			continue
		}
		for p := range strings.FieldsSeq(paths.yes) {
			if !re.MatchString(p) {
				t.Errorf("%s does not match %s", pattern, p)
			}
		}
		for p := range strings.FieldsSeq(paths.no) {
			if re.MatchString(p) {
				t.Errorf("%s matches %s", pattern, p)
			}
		}
	}
	for _, bad := range []string{"", "[a", "{a", strings.Repeat("a", 2000)} {
		if _, err := Glob(bad); err == nil {
			t.Errorf("Glob accepted %.10q", bad)
		}
	}
}

func FuzzGlob(f *testing.F) {
	for _, s := range []string{"*.go", "**/x", "{a,b}", "[a-z]", `\`, "[]", "[^]a]", "{{,}", "ü*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if re, err := Glob(s); err == nil {
			re.MatchString("a/b/c.go")
		}
	})
}

// FuzzRead checks that a hostile sandbox can cause no more matches than requested.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"p":"a","l":1,"t":"x"}` + "\n" + `{"end":{"files":1}}` + "\n"))
	f.Add([]byte("{}\n{}\n{}\n{}\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := 0
		_, _ = Read(bytes.NewReader(data), 3, func(Match) { n++ })
		if n > 3 {
			t.Fatalf("got %d matches, want at most 3", n)
		}
	})
}

func BenchmarkSearch(b *testing.B) {
	files := map[string]string{}
	for i := range 500 {
		files[fmt.Sprintf("d%d/f%d.go", i%20, i)] = strings.Repeat("func Something(x int) error { return nil }\n", 500)
	}
	root := newTree(b, files)
	var bytes int64
	for _, text := range files {
		bytes += int64(len(text))
	}
	b.SetBytes(bytes)
	for b.Loop() {
		if _, err := run([]string{"10", root, "*.go", "nothing (here|there)"}, func(Match) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
