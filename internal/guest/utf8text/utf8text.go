// Package utf8text owns texts that may not be UTF-8, such as arguments and paths, in protocols that
// only carry UTF-8. It escapes them for Crannog's own clients, and names the invalid text for other
// clients.
package utf8text

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/crannog/crannog/internal/guest/gen/processpb"
)

// Header marks a request to start a process with escaped texts. Its arguments then begin with the
// program, and cmd is empty, so that a guest that does not know the header rejects the request.
const Header = "Crannog-Escaped"

// Escape encodes a text in ASCII: each byte that is not part of a valid character, and the percent
// sign, becomes a percent sign and two hex digits.
func Escape(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if r == '%' || r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, "%%%02X", text[0])
		} else {
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}

// EscapeStart escapes the texts of a request and sets the header, if one of the texts is not UTF-8.
func EscapeStart(h http.Header, m *processpb.StartRequest) {
	p := m.GetProcess()
	valid := utf8.ValidString(p.GetCmd()) && utf8.ValidString(p.GetCwd())
	for _, a := range p.GetArgs() {
		valid = valid && utf8.ValidString(a)
	}
	for name, value := range p.GetEnvs() {
		valid = valid && utf8.ValidString(name) && utf8.ValidString(value)
	}
	if valid {
		return
	}
	h.Set(Header, "1")
	args := []string{Escape(p.GetCmd())}
	for _, a := range p.GetArgs() {
		args = append(args, Escape(a))
	}
	envs := map[string]string{}
	for name, value := range p.GetEnvs() {
		envs[Escape(name)] = Escape(value)
	}
	p.Cmd, p.Args, p.Envs = "", args, envs
	if p.Cwd != nil {
		dir := Escape(p.GetCwd())
		p.Cwd = &dir
	}
}

// UnescapeStart reverses EscapeStart. Everything that reads a request must call it, because
// otherwise it would see another command than the one that runs.
func UnescapeStart(h http.Header, m *processpb.StartRequest) error {
	if h.Get(Header) == "" {
		return nil
	}
	p := m.GetProcess()
	if p.GetCmd() != "" || len(p.GetArgs()) == 0 {
		return errors.New("the arguments of an escaped request begin with the program, and cmd is empty")
	}
	var failed error
	unescape := func(text string) string {
		out, err := url.PathUnescape(text)
		failed = errors.Join(failed, err)
		return out
	}
	args := make([]string, 0, len(p.GetArgs()))
	for _, a := range p.GetArgs() {
		args = append(args, unescape(a))
	}
	envs := map[string]string{}
	for name, value := range p.GetEnvs() {
		envs[unescape(name)] = unescape(value)
	}
	if p.Cwd != nil {
		dir := unescape(p.GetCwd())
		p.Cwd = &dir
	}
	p.Cmd, p.Args, p.Envs = args[0], args[1:], envs
	return failed
}

// Valid replaces invalid bytes in a text for display.
func Valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// FindInvalid returns the path of the first text in a JSON document that is not UTF-8, such as
// "args[1]", or "". JSON parsers replace such bytes or reject the whole document without naming the
// text.
func FindInvalid(document []byte) string { return findInvalid("", document) }

func findInvalid(where string, raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	switch raw[0] {
	case '"':
		if !utf8.Valid(raw) || hasLoneSurrogate(raw) {
			return where
		}
	case '[':
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			return ""
		}
		for i, item := range list {
			if found := findInvalid(fmt.Sprintf("%s[%d]", where, i), item); found != "" {
				return found
			}
		}
	case '{':
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return ""
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			name := strings.TrimPrefix(where+"."+key, ".")
			if found := findInvalid(name, object[key]); found != "" {
				return found
			}
		}
		if !utf8.Valid(raw) {
			return strings.TrimPrefix(where+" (a name in it)", " ")
		}
	}
	return ""
}

// hasLoneSurrogate reports whether a JSON string has an unpaired surrogate, which is not a
// character.
func hasLoneSurrogate(raw []byte) bool {
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if raw[i+1] != 'u' {
			i++
			continue
		}
		high, ok := parseEscape(raw[i:])
		if !ok {
			return false
		}
		i += 5
		if high < 0xD800 || high > 0xDFFF {
			continue
		}
		low, ok := parseEscape(raw[i+1:])
		if !ok || high > 0xDBFF || low < 0xDC00 || low > 0xDFFF {
			return true
		}
		i += 6
	}
	return false
}

// parseEscape parses an escape \uXXXX.
func parseEscape(raw []byte) (n int, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	_, err := fmt.Sscanf(string(raw[2:6]), "%04x", &n)
	return n, err == nil
}
