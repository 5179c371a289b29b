package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/fault"
)

const (
	apiKey = "tk-Zr8?qP/2mW+xL0&vB=9 yé\"nD4sG"
	dbPass = "correct horse battery"
)

func newRedactor(t testing.TB, o redact.Options) *redact.Redactor {
	t.Helper()
	r, err := redact.New([]redact.Value{{Name: "API", Data: []byte(apiKey)}, {Name: "DB", Data: []byte(dbPass)}}, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// forms returns the forms in which a server may return a value.
func forms(v string) map[string]string {
	reversed := []byte(v)
	slices.Reverse(reversed)
	quoted, _ := json.Marshal(v)
	out := map[string]string{
		"raw":        v,
		"reversed":   string(reversed),
		"json":       string(quoted[1 : len(quoted)-1]),
		"query":      url.QueryEscape(v),
		"path":       url.PathEscape(v),
		"hex":        hex.EncodeToString([]byte(v)),
		"HEX":        strings.ToUpper(hex.EncodeToString([]byte(v))),
		"hex groups": groups(hex.EncodeToString([]byte(v)), 2, " "),
		"hex lines":  groups(hex.EncodeToString([]byte(v)), 9, "\n"),
	}
	for i, before := range []string{"", "u", "u:", "u:p"} {
		std := base64.StdEncoding.EncodeToString([]byte(before + v + ":tail"))
		out["base64 at "+string(rune('0'+i))] = std
		out["base64url at "+string(rune('0'+i))] = base64.URLEncoding.EncodeToString([]byte(before + v + ":tail"))
		out["base64 lines at "+string(rune('0'+i))] = groups(std, 13, "\r\n")
		out["base64 lines in JSON at "+string(rune('0'+i))] = groups(std, 13, `\n`)
		out["base64 in a query at "+string(rune('0'+i))] = url.QueryEscape(std)
	}
	return out
}

func groups(s string, n int, between string) string {
	var parts []string
	for part := range slices.Chunk([]byte(s), n) {
		parts = append(parts, string(part))
	}
	return strings.Join(parts, between)
}

// Threat S2 (docs/reference/threat-model.md): a value is redacted in every form, whether it arrives
// whole or byte by byte.
func TestEveryFormIsRedacted(t *testing.T) {
	r := newRedactor(t, redact.Options{})
	for _, v := range []struct{ name, value string }{{"API", apiKey}, {"DB", dbPass}} {
		for form, text := range forms(v.value) {
			whole := "before [" + text + "] after"
			got := r.String(whole)
			if !strings.Contains(got, "[redacted:"+v.name+"]") || !strings.HasPrefix(got, "before [") || !strings.HasSuffix(got, "] after") {
				t.Errorf("%s of %s: got %q from %q, want the value redacted and the rest unchanged", form, v.name, got, whole)
			}
			// Base64 shares characters with its neighbours. Only those may remain.
			left := strings.TrimSuffix(strings.TrimPrefix(got, "before ["), "] after")
			if rest := strings.ReplaceAll(left, "[redacted:"+v.name+"]", ""); len(rest) > 20 {
				t.Errorf("%s of %s: %q was not redacted, want at most 20 bytes", form, v.name, rest)
			}
			var out strings.Builder
			w := r.Writer(&out)
			for i := range len(whole) {
				if _, err := w.Write([]byte{whole[i]}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), "[redacted:"+v.name+"]") {
				t.Errorf("%s of %s byte by byte: got %q, want the value redacted", form, v.name, out.String())
			}
		}
	}
}

func TestOrdinaryTextIsUntouched(t *testing.T) {
	r := newRedactor(t, redact.Options{Patterns: true})
	const text = "the task-force of sk-circle-fade-dot-container-element-inner asked for AKIA and eyJust a word; -----BEGIN CERTIFICATE-----\nMII\n"
	if got := r.String(text); got != text {
		t.Errorf("got %q, want the text unchanged", got)
	}
}

func TestUnredactableValuesAreRejected(t *testing.T) {
	for code, v := range map[string]string{
		"secret_too_short": "1234567",
		"secret_too_plain": "aaaaaaaabbbbbbbbcccccccc",
		"secret_too_long":  strings.Repeat("abcdefgh", redact.MaxValue/8+1),
	} {
		_, err := redact.New([]redact.Value{{Name: "X", Data: []byte(v)}}, redact.Options{})
		if fault.CodeOf(err) != code || fault.KindOf(err) != fault.Invalid {
			t.Errorf("New: got %v, want the error %s", err, code)
		}
		if err != nil && strings.Contains(err.Error(), v) {
			t.Errorf("%s: the error shows the value", code)
		}
	}
	if err := redact.Check([]byte("12345678")); err != nil {
		t.Errorf("Check of eight different letters: got %v, want nil", err)
	}
}

func TestNilRedactorRedactsNothing(t *testing.T) {
	var r *redact.Redactor
	if got := r.String(apiKey); got != apiKey {
		t.Errorf("String: got %q, want %q", got, apiKey)
	}
	var out strings.Builder
	w := r.Writer(&out)
	w.Write([]byte(apiKey))
	if w.Close(); out.String() != apiKey {
		t.Errorf("Writer: got %q, want %q", out.String(), apiKey)
	}
}

// A value may contain as many separators as letters. Otherwise a sandbox could make the stream hold
// an endless run of separators, because each possible value is held.
func TestSeparatorsAreLimited(t *testing.T) {
	r := newRedactor(t, redact.Options{})
	digits := hex.EncodeToString([]byte(dbPass))
	half := len(digits) / 2
	for n, redacted := range map[int]bool{0: true, 1: true, len(digits): true, len(digits) + 1: false, 3 * len(digits): false} {
		in := digits[:half] + strings.Repeat(" ", n) + digits[half:]
		if got := r.String(in); (got == "[redacted:DB]") != redacted {
			t.Errorf("%d separators: got %q, want redacted: %v", n, got, redacted)
		}
	}
}
