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
	// EncodedSlash allows %2f as a slash inside a segment, which npm's scoped names and object
	// stores use.
	EncodedSlash bool
}

// plain has the characters that a path may contain in addition to letters and digits. They are
// those of RFC 3986 section 3.3 without the semicolon, and the brackets, which Go's net/url does
// not escape.
const plain = "/-._~!$&'()*+,=:@[]"

// Path returns an error if an escaped path, without its query, can be interpreted in more than one
// way. A rule matches the path as written, while the server acts on the path as it interprets it.
// So every spelling that some servers decode, truncate or normalise is an error: escaped dots and
// slashes, double encoding, doubled slashes, backslashes, path parameters, line breaks and invalid
// UTF-8.
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
	// Check the path as written and as decoded: an allowed encoded slash must not hide a "..".
	decoded, err := url.PathUnescape(escaped)
	if err != nil {
		return badPath("a path has a broken escape")
	}
	if !clean(escaped) || !clean(decoded) {
		return badPath("a path has an empty segment, a single dot or two")
	}
	// A lenient decoder reads overlong forms such as %c0%ae as dots.
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
// semicolon, because "..;" is ".." for servers that support path parameters.
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
