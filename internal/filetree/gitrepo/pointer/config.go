package pointer

import "strings"

// worktreeOf returns the value of core.worktree in a git configuration. It supports sections,
// names, quotes, escapes and comments, but follows no includes, because only the repository's own
// file counts.
func worktreeOf(text []byte) string {
	section, found := "", ""
	lines := strings.Split(string(text), "\n")
	for i := 0; i < len(lines); i++ {
		s := strings.TrimSpace(lines[i])
		for strings.HasPrefix(s, "[") {
			name, rest, ok := strings.Cut(s[1:], "]")
			if !ok {
				return ""
			}
			section, s = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(rest)
		}
		name, value, ok := strings.Cut(s, "=")
		if !ok || s == "" || s[0] == '#' || s[0] == ';' {
			continue
		}
		for strings.HasSuffix(value, `\`) && !strings.HasSuffix(value, `\\`) && i+1 < len(lines) {
			i++
			value = strings.TrimSuffix(value, `\`) + lines[i]
		}
		if section == "core" && strings.EqualFold(strings.TrimSpace(name), "worktree") {
			found = unquote(strings.TrimSpace(value))
		}
	}
	return found
}

// unquote parses a value: a quoted part is literal except for escapes, and outside of quotes a
// comment ends the value.
func unquote(value string) string {
	var out strings.Builder
	quoted := false
	end := 0 // after the last character that is not a trailing space
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case c == '"':
			quoted = !quoted
			end = out.Len()
			continue
		case c == '\\' && i+1 < len(value):
			i++
			switch value[i] {
			case 'n':
				c = '\n'
			case 't':
				c = '\t'
			case 'b':
				c = '\b'
			default:
				c = value[i]
			}
		case !quoted && (c == '#' || c == ';'):
			return out.String()[:end]
		}
		if out.WriteByte(c); quoted || c != ' ' && c != '\t' {
			end = out.Len()
		}
	}
	return out.String()[:end]
}
