package pullthrough

import "strings"

// challenge is what a registry asks for in the header WWW-Authenticate.
type challenge struct{ realm, service string }

// maxChallenge limits the header.
const maxChallenge = 4 << 10

// parseChallenge returns the first challenge for a bearer token. It returns false if there is none,
// as with a registry that wants a password.
func parseChallenge(headers []string) (challenge, bool) {
	for _, h := range headers {
		scheme, rest, _ := strings.Cut(strings.TrimSpace(h), " ")
		if len(h) > maxChallenge || !strings.EqualFold(scheme, "Bearer") {
			continue
		}
		c, ok := challenge{}, true
		for rest = strings.TrimLeft(rest, " ,"); rest != "" && ok; rest = strings.TrimLeft(rest, " ,") {
			var key, value string
			if key, value, rest, ok = parameter(rest); !ok {
				break
			}
			switch strings.ToLower(key) {
			case "realm":
				c.realm = value
			case "service":
				c.service = value
			}
		}
		if ok && c.realm != "" {
			return c, true
		}
	}
	return challenge{}, false
}

// parameter reads KEY=VALUE or KEY="VALUE" from the beginning of a text.
func parameter(text string) (key, value, rest string, ok bool) {
	key, rest, ok = strings.Cut(text, "=")
	if !ok || key == "" || strings.ContainsAny(key, " ,\"") {
		return "", "", "", false
	}
	if !strings.HasPrefix(rest, `"`) {
		end := strings.IndexAny(rest, ", ")
		if end < 0 {
			end = len(rest)
		}
		return key, rest[:end], rest[end:], true
	}
	var out strings.Builder
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '"':
			return key, out.String(), rest[i+1:], true
		case '\\':
			if i++; i == len(rest) {
				return "", "", "", false
			}
		}
		out.WriteByte(rest[i])
	}
	return "", "", "", false
}
