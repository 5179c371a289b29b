package policy

import "strings"

// longestPath limits the paths that are matched against globs.
const longestPath = 16 << 10

// target is a path in the form that rules match. Every escape except that of a slash is decoded, so
// that %68ooks cannot evade a rule about hooks.
type target struct {
	exact string
	// loose is for rules that make a decision stricter. It has no trailing slash, and has slashes
	// in place of escaped slashes, because a server may interpret escaped slashes as slashes.
	loose   string
	escaped bool // holds an escaped slash
}

// readPath decodes the escapes of a path. It rejects paths that servers may interpret in more than
// one way. The proxy rejects these before, but a decision must not depend on another package's
// check.
func readPath(p string) (target, bool) {
	if p == "" || p[0] != '/' || len(p) > longestPath {
		return target{}, false
	}
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case c == '%':
			return unescape(p)
		case c <= ' ', c >= 0x7f, c == '\\', c == ';', c == '?', c == '#':
			return target{}, false
		case c == '/' && dotted(p[i+1:]):
			return target{}, false
		}
	}
	return target{exact: p, loose: trimSlash(p)}, true
}

// dotted reports whether the rest of a path begins with "." or "..", or with an empty segment that
// is not the last.
func dotted(rest string) bool {
	if rest != "" && rest[0] == '/' {
		return true
	}
	s, _, _ := strings.Cut(rest, "/")
	return s == "." || s == ".."
}

func trimSlash(p string) string {
	if len(p) > 1 && p[len(p)-1] == '/' {
		return p[:len(p)-1]
	}
	return p
}

func unescape(p string) (target, bool) {
	var exact strings.Builder
	exact.Grow(len(p))
	slashes := false
	for i := 0; i < len(p); i++ {
		c := p[i]
		if c != '%' {
			if c <= ' ' || c >= 0x7f || c == '\\' || c == ';' || c == '?' || c == '#' || c == '/' && dotted(p[i+1:]) {
				return target{}, false
			}
			exact.WriteByte(c)
			continue
		}
		if i+2 >= len(p) || nibble(p[i+1]) < 0 || nibble(p[i+2]) < 0 {
			return target{}, false
		}
		b := byte(nibble(p[i+1])<<4 | nibble(p[i+2]))
		i += 2
		switch {
		case b == '/':
			slashes = true
			exact.WriteString("%2F")
		case b < ' ', b == 0x7f, b == '\\', b == '.', b == '%':
			return target{}, false
		default:
			exact.WriteByte(b)
		}
	}
	t := target{exact: exact.String(), escaped: slashes}
	t.loose = t.exact
	if slashes {
		t.loose = strings.ReplaceAll(t.exact, "%2F", "/")
		for i := range len(t.loose) {
			if t.loose[i] == '/' && dotted(t.loose[i+1:]) {
				return target{}, false
			}
		}
	}
	t.loose = trimSlash(t.loose)
	return t, true
}

func nibble(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
