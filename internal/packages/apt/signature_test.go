package apt

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"

	"github.com/crannog/crannog/internal/packages/keyring"
)

// signed returns a key, and a text that it has signed.
func signed(t testing.TB, text string) (keyring.Keys, []byte) {
	t.Helper()
	config := &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return time.Now().Add(-time.Hour) }}
	key, err := openpgp.NewEntity("archive", "", "archive@example.test", config)
	if err != nil {
		t.Fatal(err)
	}
	var public, out bytes.Buffer
	w, err := clearsign.Encode(&out, key.PrivateKey, config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write([]byte(text))
	if err = errors.Join(err, w.Close(), key.Serialize(&public)); err != nil {
		t.Fatal(err)
	}
	keys, err := keyring.Parse(public.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return keys, out.Bytes()
}

const escapedText = "- a note\nCodename: bookworm\n\nSHA256:\n 00 1 a"

func TestSignedTextIsWithoutEscapes(t *testing.T) {
	keys, document := signed(t, escapedText)
	if got, err := SignedText(document, keys, time.Now()); err != nil || string(got) != escapedText {
		t.Errorf("got %q (%v), want %q", got, err, escapedText)
	}
	if got, err := SignedText(document, keyring.Keys{}, time.Now()); err == nil {
		t.Errorf("without keys: got %q, want an error", got)
	}
	if got, err := SignedText(append(document, bytes.Repeat([]byte("\n"), maxRelease)...), keys, time.Now()); err == nil {
		t.Errorf("too large: got %d bytes, want an error", len(got))
	}
	long := strings.Replace(string(document), "BEGIN PGP SIGNATURE-----\n\n", "BEGIN PGP SIGNATURE-----\n\n"+strings.Repeat(strings.Repeat("A", 64)+"\n", 2*maxSignatures/64), 1)
	if _, err := splitSigned([]byte(long)); err == nil {
		t.Error("a signature of many bytes was accepted")
	}
}

// FuzzSignedText changes a signed list. Whatever passes has the text that was signed, with nothing
// around it.
func FuzzSignedText(f *testing.F) {
	keys, document := signed(f, escapedText)
	f.Add(0, []byte(""), 0)
	f.Add(0, []byte("Codename: evil\n"), 0)
	f.Add(len(document), []byte("\nCodename: evil\n"), 0)
	f.Add(60, []byte("- "), 0)
	f.Add(bytes.Index(document, []byte("-----BEGIN PGP SIGNATURE")), []byte("-----BEGIN PGP SIGNATURE-----\nComment: a\n"), 3)
	f.Fuzz(func(t *testing.T, at int, insert []byte, remove int) {
		if at < 0 || at > len(document) || remove < 0 || remove > len(document)-at {
			return
		}
		changed := append(append(bytes.Clone(document[:at]), insert...), document[at+remove:]...)
		got, err := SignedText(changed, keys, time.Now())
		if err != nil {
			return
		}
		trim := func(s string) string {
			var lines []string
			for line := range strings.SplitSeq(s, "\n") {
				lines = append(lines, strings.TrimRight(line, " \t\r"))
			}
			return strings.Join(lines, "\n")
		}
		if trim(string(got)) != trim(escapedText) || !bytes.HasPrefix(changed, []byte("-----BEGIN PGP SIGNED")) || !bytes.HasSuffix(bytes.TrimSpace(changed), []byte("-----END PGP SIGNATURE-----")) {
			t.Errorf("%q passes as %q", changed, got)
		}
	})
}
