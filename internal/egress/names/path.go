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
	// EncodedSlash lets %2f stand for a slash inside a segment, as npm's
	// scoped names and object stores write it.
	EncodedSlash bool
}

// plain is what RFC 3986 section 3.3 lets stand in a path beside letters and
// digits, without the semicolon and with the brackets that Go's net/url leaves.
const plain = "/-._~!$&'()*+,=:@[]"

// Path reports whether an escaped path, without its query, has one reading only.
// A rule matches the path that stands here while the server acts on what it
// makes of it, so every spelling that servers decode, cut or tidy up in their
// own ways is an error: dots and slashes behind %, double encoding, doubled
// slashes, backslashes, path parameters, line ends and broken UTF-8.
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
			return badPath("a path has a character that may not stand in one, such as a space, backslash or semicolon")
		}
	}
	// The whole is judged once as written and once as decoded: an encoded
	// slash that is allowed must not bring a ".." with it.
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

// escape judges the escape that s starts with.
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

// clean reports whether no server would tidy the path up. A segment counts up to
// its first semicolon: "..;" is ".." to servers that know path parameters.
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
		WithHint("send the path in its plain form: rules are matched on it as it stands")
}
