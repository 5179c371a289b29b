package redact_test

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/redact"
)

const letters = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ2bC4dE6fG8hJ0kL2nP4qR6tV8xY0aB3dE5gH7jK9mN1pQ3sT5vW7yZ2bC4dE6fG8hJ0kL2nP4qR6t"

func tokens() map[string][]string {
	upper := strings.ToUpper(letters)
	return map[string][]string{
		"github-token":       {"ghp_" + letters[:36], "gho_" + letters[:36], "ghs_" + letters[:36], "ghr_" + letters[:36], "github_pat_" + letters[:22] + "_" + letters[:59]},
		"gitlab-token":       {"glpat-" + letters[:20]},
		"aws-key":            {"AKIA" + upper[:16], "ASIA" + upper[:16]},
		"anthropic-key":      {"sk-ant-api03-" + letters[:90]},
		"api-key":            {"sk-" + letters[:48]},
		"slack-token":        {"xoxb-123456789012-123456789012-" + letters[:24], "xoxp-" + letters[:40]},
		"npm-token":          {"npm_" + letters[:36]},
		"pypi-token":         {"pypi-AgEIcHlwaS5vcmc" + letters[:80]},
		"jwt":                {"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0." + letters[:43]},
		"google-key":         {"AIza" + letters[:35]},
		"huggingface-token":  {"hf_" + letters[:34]},
		"digitalocean-token": {"dop_v1_" + strings.ToLower(letters[:64])},
		"sendgrid-key":       {"SG." + letters[:22] + "." + letters[:43]},
		"stripe-key":         {"sk_live_" + letters[:24], "rk_live_" + letters[:24]},
		"shopify-token":      {"shpat_" + letters[:32]},
		"private-key": {
			"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n" + letters[:64] + "\n" + letters[:20] + "==\n-----END RSA PRIVATE KEY-----",
			`-----BEGIN PRIVATE KEY-----\n` + letters[:64] + `\n-----END PRIVATE KEY-----`,
		},
	}
}

func TestTokensAreRedactedByFormat(t *testing.T) {
	r, err := redact.New(nil, redact.Options{Patterns: true})
	if err != nil {
		t.Fatal(err)
	}
	without, err := redact.New(nil, redact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, all := range tokens() {
		for _, token := range all {
			for _, around := range [][2]string{{"", ""}, {"x=", " y"}, {`"`, `",`}, {`a\n`, "\r\n"}, {"q=%3D", "&"}, {"Bearer ", "\n"}} {
				in := around[0] + token + around[1]
				want := around[0] + "[redacted:" + name + "]" + around[1]
				if got := r.String(in); got != want {
					t.Errorf("got %q from %q, want %q", got, in, want)
				}
				if got := without.String(in); got != in {
					t.Errorf("without patterns: got %q from %q, want it unchanged", got, in)
				}
				// If it arrives byte by byte, exactly the first five characters are output.
				var out strings.Builder
				w := r.Writer(&out)
				for i := range len(in) {
					w.Write([]byte{in[i]})
				}
				w.Close()
				if want := around[0] + token[:5] + "[redacted:" + name + "]" + around[1]; out.String() != want {
					t.Errorf("byte by byte: got %q from %q, want %q", out.String(), in, want)
				}
			}
			if got := r.String(token + " " + token); strings.Count(got, "[redacted:") != 2 || strings.Contains(got, letters[:8]) {
				t.Errorf("two tokens of %s: got %q, want both redacted", name, got)
			}
		}
	}
}

func TestSimilarTextIsNotRedacted(t *testing.T) {
	r, err := redact.New(nil, redact.Options{Patterns: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{
		"ghp_short", "xghp_" + letters[:20], "AKIA" + strings.ToUpper(letters[:17]), "task-" + letters[:48], "MAKIA" + strings.ToUpper(letters[:16]),
		"sk-fading-circle-container-of-the-page-header", "eyJustaword.but.no.token", "SG.no", "sk_live_", "-----BEGIN PUBLIC KEY-----\n" + letters,
		"-----BEGIN PRIVATE", "glpat-", "hf_model_name_that_is_long_enough_to_be_one",
	} {
		if got := r.String(in); got != in {
			t.Errorf("got %q from %q, want it unchanged", got, in)
		}
	}
}

// A private key without an END line does not redact everything after it.
func TestPrivateKeyWithoutEndIsLimited(t *testing.T) {
	r, err := redact.New(nil, redact.Options{Patterns: true})
	if err != nil {
		t.Fatal(err)
	}
	in := "-----BEGIN PRIVATE KEY-----\nMIIE\n(the rest of the page)"
	if got := r.String(in); got != "[redacted:private-key](the rest of the page)" {
		t.Errorf("got %q, want only the key redacted", got)
	}
}

// An invalid BEGIN line does not prevent the next one from being recognised.
func TestPrivateKeyAfterInvalidBeginLine(t *testing.T) {
	r, err := redact.New(nil, redact.Options{Patterns: true})
	if err != nil {
		t.Fatal(err)
	}
	key := "-----BEGIN RSA PRIVATE KEY-----\nBODY" + letters + "\n-----END RSA PRIVATE KEY-----"
	for _, lure := range []string{"-----BEGIN " + letters[:50], "-----BEGIN PRIVATE KEY-----\n-----END " + letters[:60], "-----BEGIN -----BEGIN "} {
		if got := r.String(lure + key + "."); strings.Contains(got, "BODY") || !strings.HasSuffix(got, "[redacted:private-key].") {
			t.Errorf("after %q: got %q, want the key redacted", lure, got)
		}
	}
}

// FuzzPieces compares a text in one piece with the same text in several. The same bytes are
// redacted, except for up to five letters of a token at a border between pieces.
func FuzzPieces(f *testing.F) {
	for _, all := range tokens() {
		for _, token := range all {
			f.Add([]byte("a "+token+" b "+token), uint16(3), uint16(7))
		}
	}
	f.Add([]byte("sk-sk-ant-eyJghp_-----BEGIN PRIVATE KEY-----"+letters), uint16(1), uint16(1))
	f.Fuzz(func(t *testing.T, text []byte, first, step uint16) {
		r, err := redact.New([]redact.Value{{Name: "V", Data: []byte("sk-ant-0123456789ab")}}, redact.Options{Patterns: true, SameLength: true})
		if err != nil {
			t.Fatal(err)
		}
		whole := r.Bytes(text)
		if len(whole) != len(text) {
			t.Fatalf("%d bytes became %d", len(text), len(whole))
		}
		s := r.Stream()
		var got []byte
		n := int(first)
		for rest := text; ; n = int(step)%64 + 1 {
			n = min(n, len(rest))
			got = s.Append(got, rest[:n])
			if rest = rest[n:]; len(rest) == 0 {
				break
			}
		}
		got = s.End(got)
		if len(got) != len(text) {
			t.Fatalf("in pieces %d bytes became %d", len(text), len(got))
		}
		shown := 0
		for i := range text {
			switch got[i] {
			case whole[i]:
				shown = 0
			case '*':
				t.Fatalf("byte %d is redacted only in pieces:\n%q\n%q", i, whole, got)
			default:
				if shown++; shown > 5 {
					t.Fatalf("bytes up to %d are shown only in pieces:\n%q\n%q", i, whole, got)
				}
			}
		}
	})
}
