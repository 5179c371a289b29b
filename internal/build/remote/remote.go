// Package remote owns the sources of ADD that are not in the build context: their forms, their
// checksums, and the commands that fetch them in a sandbox. It fetches nothing itself.
package remote

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"net/url"
	"path"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/pattern"
)

// CodeInvalid is the code of the error for a source that cannot be fetched.
const CodeInvalid = "build_source_invalid"

// Source is a file at a URL, or a git repository.
type Source struct {
	URL string
	Git bool
	// Ref is a branch, a tag or a commit; "" is the default branch. Dir is a directory of the
	// repository; "" is all of it.
	Ref, Dir string
}

// maxURL bounds the length of a URL, in bytes.
const maxURL = 4096

// fullCommit is a commit that needs no resolution.
var fullCommit = pattern.New(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// refForm is the form of a ref. Its first character is no dash, so that git cannot read it as an
// option.
var refForm = pattern.New(`^[A-Za-z0-9_][A-Za-z0-9_./+@-]*$`)

// Is reports whether a word of ADD is a remote source, and not a file of the build context.
func Is(word string) bool { return strings.Contains(word, "://") || strings.HasPrefix(word, "git@") }

// Parse parses a word for which Is is true. As with other builders, an HTTP URL is a repository if
// its path ends in .git.
func Parse(word string) (Source, error) {
	refuse := func(format string, args ...any) (Source, error) {
		return Source{}, fault.Newf(fault.Invalid, CodeInvalid, format, args...)
	}
	if strings.HasPrefix(word, "git@") || strings.HasPrefix(word, "ssh://") || strings.HasPrefix(word, "git://") {
		return refuse("%.200q: repositories are fetched with https only; write https://HOST/PATH.git", word)
	}
	u, err := url.Parse(word)
	if err != nil || len(word) > maxURL || strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return refuse("%.200q is not a URL", word)
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return refuse("%.200q is neither an http nor an https URL", word)
	}
	if u.User != nil {
		// The words of an instruction become part of the image's history.
		return refuse("the URL at %s contains credentials, which would become part of the image", u.Host)
	}
	s := Source{Git: strings.HasSuffix(u.Path, ".git")}
	if !s.Git {
		u.Fragment, u.RawFragment = "", ""
		s.URL = u.String()
		return s, nil
	}
	if u.RawQuery != "" {
		return refuse("%.200q: write the branch and the directory of a repository as #REF:DIR", word)
	}
	s.Ref, s.Dir, _ = strings.Cut(u.Fragment, ":")
	u.Fragment, u.RawFragment = "", ""
	s.URL = u.String()
	if s.Ref != "" && (!refForm.MatchString(s.Ref) || strings.Contains(s.Ref, "..")) {
		return refuse("%.100q is not a branch, a tag or a commit", s.Ref)
	}
	s.Dir = strings.TrimPrefix(path.Clean("/"+s.Dir), "/")
	if s.Dir == ".git" || strings.HasPrefix(s.Dir, ".git/") {
		return refuse("%.100q is not a directory of the repository's files", s.Dir)
	}
	return s, nil
}

// Name returns the name of the file at a URL, and an error if the URL has none and the destination
// is a directory.
func (s Source) Name(destination string) (string, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return "", err
	}
	name := path.Base(u.Path)
	if name != "." && name != "/" && name != ".." {
		return name, nil
	}
	if strings.HasSuffix(destination, "/") {
		return "", fault.Newf(fault.Invalid, CodeInvalid, "%.200q names no file; name the file at the destination", s.URL)
	}
	return "unnamed", nil
}

// CheckSum checks the form of --checksum.
func (s Source) CheckSum(text string) error {
	if s.Git {
		const shortest = 7
		if len(text) >= shortest && len(text) <= 64 && strings.Trim(text, "0123456789abcdef") == "" {
			return nil
		}
		return fault.Newf(fault.Invalid, CodeInvalid, "--checksum of a repository is a commit, and %.100q is none", text)
	}
	_, _, err := sum(text)
	return err
}

// sum returns the hash function and the value of a checksum.
func sum(text string) (hash.Hash, []byte, error) {
	name, digits, _ := strings.Cut(text, ":")
	want, err := hex.DecodeString(digits)
	for known, h := range map[string]hash.Hash{"sha256": sha256.New(), "sha384": sha512.New384(), "sha512": sha512.New()} {
		if name == known && err == nil && len(want) == h.Size() {
			return h, want, nil
		}
	}
	return nil, nil, fault.Newf(fault.Invalid, CodeInvalid, "--checksum %.100q is not of the form sha256:HEX", text)
}

// Verify compares a file with a checksum.
func (s Source) Verify(text string, content io.Reader) error {
	h, want, err := sum(text)
	if err != nil {
		return err
	}
	if _, err := io.Copy(h, content); err != nil {
		return err
	}
	if got := h.Sum(nil); string(got) != string(want) {
		name, _, _ := strings.Cut(text, ":")
		return fault.Newf(fault.Invalid, "build_checksum", "the file at %.200s has the checksum %s:%x, and not %.150s", s.URL, name, got, text)
	}
	return nil
}

// VerifyCommit compares the fetched commit with a checksum, which may be its beginning.
func (s Source) VerifyCommit(text, commit string) error {
	if !fullCommit.MatchString(commit) {
		return fmt.Errorf("%.100q is not a commit", commit)
	}
	if !strings.HasPrefix(commit, text) {
		return fault.Newf(fault.Invalid, "build_checksum", "%.100q of %.200s is the commit %s, and not %.64s", s.Ref, s.URL, commit, text)
	}
	return nil
}

// Pin returns a text that determines the content: the checksum, or the commit. It is "" if the
// content is known only after the source was fetched.
func (s Source) Pin(checksum string) string {
	switch {
	case s.Git && fullCommit.MatchString(checksum):
		return checksum
	case s.Git && fullCommit.MatchString(s.Ref):
		return s.Ref
	case !s.Git && checksum != "":
		return strings.ToLower(checksum)
	}
	return ""
}

// String returns the source for progress and errors.
func (s Source) String() string {
	out := s.URL
	if s.Ref != "" || s.Dir != "" {
		out += "#" + s.Ref
	}
	if s.Dir != "" {
		out += ":" + s.Dir
	}
	return out
}
