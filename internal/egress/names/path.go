package names

import (
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/crannog/crannog/internal/fault"
)

// PathOptions loosen Path for hosts whose protocol needs it.
type PathOptions struct {
	// EncodedSlash allows %2f as a slash inside a segment, as npm's scoped names and object stores
	// use it.
	EncodedSlash bool
}

// plain are the characters that RFC 3986 section 3.3 allows in a path beside letters and digits,
// without the semicolon and with the brackets that Go's net/url leaves.
const plain = "/-._~!$&'()*+,=:@[]"

// Path returns an error unless an escaped path, without its query, has only one reading. A rule
// matches the written path while the server acts on what it makes of it, so every spelling that
// servers decode, cut or normalise in their own ways is an error: escaped dots and slashes, double
// encoding, doubled slashes, backslashes, path parameters, line ends and invalid UTF-8.
func Path(escaped string, o PathOptions) error {
	if !strings.HasPrefix(escaped, "/") {
		return badPath("a path does not start with a slash")
	}
	for i := 0; i < len(escaped); i++ {
		switch c := escaped[i]; {
		case c == '%':
			if err := escape(escaped[i:], o); err != nil {
				return err
			}
			i += 2
		case !isLetter(c) && !isDigit(c) && !strings.ContainsRune(plain, rune(c)):
			return badPath("a path has a character that is not allowed, such as a space, backslash or semicolon")
		}
	}
	// The whole is checked as written and as decoded: an allowed encoded slash must not bring a
	// ".." with it.
	decoded, err := url.PathUnescape(escaped)
	if err != nil {
		return badPath("a path has a broken escape")
	}
	if !clean(escaped) || !clean(decoded) {
		return badPath("a path has an empty segment, a single dot or two")
	}
	// Overlong forms such as %c0%ae are dots to a lenient decoder.
	if !utf8.ValidString(decoded) {
		return badPath("a path is not UTF-8 when decoded")
	}
	return nil
}

// escape checks the escape at the beginning of s.
func escape(s string, o PathOptions) error {
	if len(s) < 3 || !isHex(s[1]) || !isHex(s[2]) {
		return badPath("a path has a broken escape")
	}
	switch v := unhex(s[1])<<4 | unhex(s[2]); {
	case v == '/' && o.EncodedSlash:
		return nil
	case v < ' ' || v == 0x7f:
		return badPath("a path has an escaped control character")
	case v == '.' || v == '/' || v == '\\' || v == '%':
		return badPath("a path has an escaped dot, slash, backslash or percent sign")
	}
	return nil
}

// clean reports whether every server would leave the path unchanged. A segment ends at its first
// semicolon: "..;" is ".." to servers that know path parameters.
func clean(p string) bool {
	for segment := range strings.SplitSeq(p, "/") {
		segment, _, _ = strings.Cut(segment, ";")
		if segment == "." || segment == ".." {
			return false
		}
	}
	tidy := path.Clean(p)
	return p == tidy || tidy != "/" && p == tidy+"/"
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func unhex(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

func badPath(text string) *fault.Error {
	return fault.New(fault.Invalid, "path_ambiguous", text).
		WithHint("send the path in its plain form: rules match it as written")
}
