package remote_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/build/remote"
	"github.com/crannog/crannog/internal/fault"
)

func TestParseDistinguishesFilesAndRepositories(t *testing.T) {
	for word, want := range map[string]remote.Source{
		"https://a.test/dir/f.tar?x=1#part": {URL: "https://a.test/dir/f.tar?x=1"},
		"http://a.test/x.git":               {URL: "http://a.test/x.git", Git: true},
		"https://a.test/x.git#v1.2":         {URL: "https://a.test/x.git", Git: true, Ref: "v1.2"},
		"https://a.test/x.git#:dir/sub/":    {URL: "https://a.test/x.git", Git: true, Dir: "dir/sub"},
		"https://a.test/x.git#main:../../e": {URL: "https://a.test/x.git", Git: true, Ref: "main", Dir: "e"},
	} {
		if got, err := remote.Parse(word); err != nil || got != want {
			t.Errorf("Parse(%q): got %+v, error %v, want %+v", word, got, err, want)
		}
	}
	for _, word := range []string{
		"git@a.test:x.git", "ssh://a.test/x.git", "git://a.test/x.git", "file:///etc/passwd", "ftp://a.test/x", "https:///x", "https://u:p@a.test/x",
		"https://a.test/x.git#-u", "https://a.test/x.git#a..b", "https://a.test/x.git#a b", "https://a.test/x.git?ref=a", "https://a.test/x.git#main:.git/hooks",
		"https://a.test/\n", "https://a.test/" + strings.Repeat("x", 5000),
	} {
		if got, err := remote.Parse(word); fault.KindOf(err) != fault.Invalid {
			t.Errorf("Parse(%.80q): got %+v, error %v, want Invalid", word, got, err)
		}
	}
}

func TestVerifyComparesChecksums(t *testing.T) {
	s := remote.Source{URL: "https://a.test/x"}
	for sum, ok := range map[string]bool{
		"sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881":                                                                 true,
		"sha512:a4abd4448c49562d828115d13a1fccea927f52b4d5459297f8b43e42da89238bc13626e43dcb38ddb082488927ec904fb42057443983e88585179d50551afe62": true,
		"sha256:" + strings.Repeat("0", 64):    false,
		"md5:9dd4e461268c8034f5c8564e155c67a6": false,
		"sha256:2d71":                          false,
		"":                                     false,
	} {
		if err := s.Verify(sum, strings.NewReader("x")); (err == nil) != ok {
			t.Errorf("Verify with %q: got %v, want success: %v", sum, err, ok)
		}
	}
	commit := strings.Repeat("ab", 20)
	for text, ok := range map[string]bool{commit: true, "abababab": true, "": true, "bababab": false, commit + "ab": false} {
		if err := s.VerifyCommit(text, commit); (err == nil) != ok {
			t.Errorf("VerifyCommit(%q): got %v, want success: %v", text, err, ok)
		}
	}
	if s.VerifyCommit("", "main") == nil {
		t.Error("VerifyCommit accepted a commit that is none")
	}
}

// FuzzParse checks that no word of a Dockerfile becomes an option of git, a URL with credentials or
// a path out of a repository.
func FuzzParse(f *testing.F) {
	for _, word := range []string{"https://a.test/x", "https://a.test/x.git#main:dir", "git@a.test:x", "https://u:p@a.test/.git#-x:../y"} {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		s, err := remote.Parse(word)
		if err != nil {
			return
		}
		u, err := url.Parse(s.URL)
		if err != nil || u.User != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			t.Errorf("Parse(%q): got the URL %q", word, s.URL)
		}
		if strings.HasPrefix(s.Ref, "-") || strings.HasPrefix(s.Dir, "/") || strings.HasPrefix(s.Dir, "..") || s.Dir == ".git" || strings.HasPrefix(s.Dir, ".git/") {
			t.Errorf("Parse(%q): got the ref %q and the directory %q", word, s.Ref, s.Dir)
		}
		if name, err := s.Name("/"); err == nil && (name == "" || name == ".." || strings.Contains(name, "/")) {
			t.Errorf("Name of %q: got %q", word, name)
		}
	})
}
