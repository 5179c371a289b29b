package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strings"
	"unicode/utf16"
)

// tables have everything that a scan needs. All streams of one Redactor share them.
type tables struct {
	plain, wrapped *automaton
	skip           *skip
	names          []string // by pattern; those of rules follow those of values
	values         int      // patterns below this are values, the others start rules
	history        int      // bytes that a step may look back
}

func build(values []Value, patterns bool) *tables {
	t := &tables{values: len(values)}
	plain, wrapped := newTrie(), newTrie()
	for i, v := range values {
		t.names = append(t.names, v.Name)
		for _, f := range plainForms(v.Data) {
			plain.add(f, int32(i))
		}
		for _, f := range wrappedForms(v.Data) {
			wrapped.add(f, int32(i))
		}
	}
	if patterns {
		for i, r := range rules {
			t.names = append(t.names, r.name)
			plain.add([]byte(r.prefix), int32(len(values)+i))
		}
	}
	t.plain, t.wrapped = plain.automaton(false), wrapped.automaton(true)
	t.skip = newSkip(t.plain, t.wrapped)
	t.history = max(plain.longest, 2*wrapped.longest, maxHeader) + 8
	return t
}

// plainForms returns the forms of a value that programs never break into lines.
func plainForms(v []byte) [][]byte {
	reversed := slices.Clone(v)
	slices.Reverse(reversed)
	text := string(v)
	forms := []string{text, string(reversed), html.EscapeString(text)}
	forms = append(forms, jsonForms(text)...)
	forms = append(forms, urlForms(text)...)
	for _, b := range base64Forms(v, base64.RawStdEncoding) {
		// Base64 in a query and in JSON.
		escaped := strings.NewReplacer("+", "%2B", "/", "%2F").Replace(b)
		forms = append(forms, escaped, strings.NewReplacer("+", "%2b", "/", "%2f").Replace(b), strings.ReplaceAll(b, "/", `\/`))
	}
	return distinct(forms)
}

// wrappedForms returns the forms that programs such as base64 and xxd break into lines or groups.
func wrappedForms(v []byte) [][]byte {
	lower := hex.EncodeToString(v)
	forms := []string{lower, strings.ToUpper(lower)}
	forms = append(forms, base64Forms(v, base64.RawStdEncoding)...)
	forms = append(forms, base64Forms(v, base64.RawURLEncoding)...)
	return distinct(forms)
}

// base64Forms returns the parts of a value's base64 encoding that depend only on the value. There
// are three, one for each position of the value's first byte in a group of three bytes. A character
// at either end encodes up to four bits of the value together with bits of the neighbouring text.
// It is not redacted.
func base64Forms(v []byte, e *base64.Encoding) []string {
	var forms []string
	for before := range 3 {
		padded := append(make([]byte, before, before+len(v)), v...)
		all := e.EncodeToString(padded)
		first := (before*8 + 5) / 6
		last := len(padded) * 8 / 6
		forms = append(forms, all[first:last])
	}
	return forms
}

func jsonForms(text string) []string {
	var forms []string
	for _, escapeHTML := range []bool{true, false} {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(escapeHTML)
		if err := e.Encode(text); err != nil {
			continue // strings always encode
		}
		quoted := strings.TrimSuffix(strings.TrimSuffix(b.String(), "\n"), `"`)[1:]
		forms = append(forms, quoted, strings.ReplaceAll(quoted, "/", `\/`), ascii(quoted))
	}
	return forms
}

// ascii encodes everything that is not ASCII as \uXXXX, like many encoders.
func ascii(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < 0x80 {
			b.WriteRune(r)
			continue
		}
		units := []uint16{uint16(r)}
		if r > 0xffff {
			hi, lo := utf16.EncodeRune(r)
			units = []uint16{uint16(hi), uint16(lo)}
		}
		for _, u := range units {
			b.WriteString(`\u` + hex.EncodeToString([]byte{byte(u >> 8), byte(u)}))
		}
	}
	return b.String()
}

// maxPercentEncoded is the maximum length of values for which the form with every byte
// percent-encoded is searched too. Common clients do not send longer values in this form.
const maxPercentEncoded = 512

func urlForms(text string) []string {
	query, path := url.QueryEscape(text), url.PathEscape(text)
	component := strings.ReplaceAll(query, "+", "%20")
	// JavaScript's encodeURIComponent leaves these characters unchanged, and Go does not.
	script := strings.NewReplacer("%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*").Replace(component)
	forms := []string{query, path, component, script}
	if len(text) <= maxPercentEncoded {
		var all strings.Builder
		for i := range len(text) {
			all.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{text[i]})))
		}
		forms = append(forms, all.String())
	}
	for _, f := range slices.Clone(forms) {
		forms = append(forms, lowerEscapes(f))
	}
	return forms
}

// lowerEscapes turns %2F into %2f.
func lowerEscapes(text string) string {
	b := []byte(text)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
			i += 2
		}
	}
	return string(b)
}

func distinct(forms []string) [][]byte {
	slices.Sort(forms)
	var out [][]byte
	for _, f := range slices.Compact(forms) {
		out = append(out, []byte(f))
	}
	return out
}
