package keyring

import (
	"bytes"
	"crypto"
	_ "crypto/md5" //nolint:gosec // as below
	"crypto/rsa"
	_ "crypto/sha1" //nolint:gosec // to show that it is refused
	"encoding/binary"
	"errors"
	"log/slog"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"

	"github.com/crannog/crannog/internal/fault"
)

var (
	made = time.Now().Add(-48 * time.Hour)
	text = []byte("Codename: bookworm\r\nSHA256: …")
)

// config is for keys and signatures that were made some time after made.
func config(after time.Duration) *packet.Config {
	return &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return made.Add(after) }}
}

func newKey(t *testing.T, c *packet.Config) *openpgp.Entity {
	t.Helper()
	key, err := openpgp.NewEntity("archive", "", "archive@example.test", c)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func public(t *testing.T, keys ...*openpgp.Entity) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, k := range keys {
		if err := k.Serialize(&out); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func parsed(t *testing.T, keys ...*openpgp.Entity) Keys {
	t.Helper()
	k, err := Parse(public(t, keys...))
	if err != nil || k.Len() != len(keys) {
		t.Fatalf("got %d keys (%v), want %d", k.Len(), err, len(keys))
	}
	return k
}

func sign(t *testing.T, c *packet.Config, keys ...*openpgp.Entity) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, k := range keys {
		if err := openpgp.DetachSign(&out, []*openpgp.Entity{k}, bytes.NewReader(text), c); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// rawSignature is a signature of an RSA key with a digest that the library does not make. It is made
// by hand (RFC 9580, section 5.2.3).
func rawSignature(t *testing.T, key *openpgp.Entity, id byte, hash crypto.Hash) []byte {
	t.Helper()
	created := binary.BigEndian.AppendUint32([]byte{5, 2}, uint32(time.Now().Add(-time.Hour).Unix()))
	hashed := append([]byte{4, 0, 1, id, 0, byte(len(created))}, created...)
	h := hash.New()
	h.Write(text)
	h.Write(hashed)
	h.Write(binary.BigEndian.AppendUint32([]byte{4, 0xff}, uint32(len(hashed))))
	sum := h.Sum(nil)
	value, err := rsa.SignPKCS1v15(nil, key.PrivateKey.PrivateKey.(*rsa.PrivateKey), hash, sum)
	if err != nil {
		t.Fatal(err)
	}
	value = bytes.TrimLeft(value, "\x00")
	body := binary.BigEndian.AppendUint64(append(hashed, 0, 10, 9, 16), key.PrimaryKey.KeyId)
	body = append(body, sum[:2]...)
	body = binary.BigEndian.AppendUint16(body, uint16(8*(len(value)-1)+bits.Len8(value[0])))
	body = append(body, value...)
	return append(binary.BigEndian.AppendUint16([]byte{0x89}, uint16(len(body))), body...)
}

func TestVerifyAcceptsOnlyGoodSignatures(t *testing.T) {
	brief := config(0)
	brief.KeyLifetimeSecs = 24 * 3600
	known, other, expired := newKey(t, config(0)), newKey(t, config(0)), newKey(t, brief)
	keys := parsed(t, known, expired)
	withdrawn := newKey(t, config(0))
	early := sign(t, config(time.Hour), withdrawn)
	if err := withdrawn.Revoke(packet.KeyCompromised, "", config(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	ending := config(time.Hour)
	ending.SigLifetimeSecs = 60
	rsa := config(0)
	rsa.Algorithm, rsa.RSABits = packet.PubKeyAlgoRSA, 2048
	strong := newKey(t, rsa)
	rsa.RSABits = 1024
	short := newKey(t, rsa)
	good, weak := sign(t, config(time.Hour), known), rawSignature(t, strong, 2, crypto.SHA1)
	many := bytes.Repeat(good, maxSignatures+1)
	for name, c := range map[string]struct {
		keys             Keys
		text, signatures []byte
		untrusted        bool
		want             string // in the error; "" for none
	}{
		"good":                        {keys, text, good, false, ""},
		"another of two keys":         {parsed(t, other, known), text, good, false, ""},
		"RSA":                         {parsed(t, strong), text, sign(t, config(time.Hour), strong), false, ""},
		"one known of several":        {keys, text, sign(t, config(time.Hour), other, known), false, ""},
		"the newer copy of a key":     {parsed(t, expired, known), text, good, false, ""},
		"unknown key":                 {keys, text, sign(t, config(time.Hour), other), true, nameOf(other.PrimaryKey.KeyId)},
		"no keys":                     {Keys{}, text, good, true, nameOf(known.PrimaryKey.KeyId)},
		"no signature":                {keys, text, nil, true, "no signature"},
		"tampered text":               {keys, append([]byte("x"), text...), good, false, "not what the key"},
		"tampered, and an unknown":    {keys, []byte("x"), sign(t, config(time.Hour), known, other), false, "not what the key"},
		"expired key":                 {keys, text, sign(t, config(time.Hour), expired), true, "expired"},
		"revoked key":                 {parsed(t, withdrawn), text, early, true, "revoked"},
		"expired signature":           {keys, text, sign(t, ending, known), true, "expired"},
		"from the future":             {keys, text, sign(t, config(1000*time.Hour), known), true, "expired"},
		"SHA-1":                       {parsed(t, strong), text, weak, true, "SHA-1"},
		"SHA-256 made by hand":        {parsed(t, strong), text, rawSignature(t, strong, 8, crypto.SHA256), false, ""},
		"SHA-1 and one that is good":  {parsed(t, strong, known), text, append(slices.Clone(weak), good...), false, ""},
		"SHA-1 of a tampered text":    {parsed(t, strong), []byte("x"), weak, true, "SHA-1"},
		"short key":                   {parsed(t, short), text, rawSignature(t, short, 8, crypto.SHA256), true, "cannot be used"},
		"MD5":                         {parsed(t, strong), text, rawSignature(t, strong, 1, crypto.MD5), true, "no signature of a known kind"},
		"too many":                    {keys, text, many, false, "more than"},
		"damaged":                     {keys, text, good[:len(good)/2], false, "cannot be read"},
		"a key instead of signatures": {keys, text, public(t, known), false, "cannot be read"},
	} {
		err := c.keys.Verify(c.text, c.signatures, time.Now())
		_, untrusted := errors.AsType[*UntrustedError](err)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: got %v, want no error", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || untrusted != c.untrusted):
			t.Errorf("%s: got %v (untrusted: %t), want %q (%t)", name, err, untrusted, c.want, c.untrusted)
		}
	}
	// The control of the expired key: the same signature while the key was valid.
	if err := keys.Verify(text, sign(t, config(time.Hour), expired), made.Add(2*time.Hour)); err != nil {
		t.Errorf("key before it expired: got %v, want no error", err)
	}
}

func armored(t *testing.T, kind string, data []byte) string {
	t.Helper()
	var out bytes.Buffer
	w, err := armor.Encode(&out, kind, nil)
	if err == nil {
		_, err = w.Write(data)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.String() + "\n"
}

func TestParseReadsPublicKeys(t *testing.T) {
	one, two := newKey(t, config(0)), newKey(t, config(0))
	block := armored(t, openpgp.PublicKeyType, public(t, one))
	var private bytes.Buffer
	if err := one.SerializePrivate(&private, config(0)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		data string
		keys int
		want string
	}{
		"binary":           {string(public(t, one, two)), 2, ""},
		"armored":          {block, 1, ""},
		"blocks and notes": {"# the archive's\n" + block + "# another\n" + armored(t, openpgp.PublicKeyType, public(t, two)), 2, ""},
		"a private key":    {private.String(), 0, "private key"},
		"a private block":  {armored(t, openpgp.PrivateKeyType, private.Bytes()), 0, "no public key"},
		"empty":            {"", 0, "no public key"},
		"a text":           {"hello", 0, "no public key"},
		"half a block":     {block[:len(block)/2], 0, "no end"},
		"half a key":       {string(public(t, one)[:60]), 0, "no file of OpenPGP keys"},
		"too large":        {strings.Repeat("x", MaxSize+1), 0, "more than"},
	} {
		got, err := Parse([]byte(c.data))
		if got.Len() != c.keys || (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %d keys (%v), want %d (%q)", name, got.Len(), err, c.keys, c.want)
		}
	}
}

// file is the file of keys.
type file string

func (f file) Keyring() (*os.File, error) {
	out, err := os.Open(string(f))
	if os.IsNotExist(err) {
		err = fault.Wrap(err, fault.NotFound, "package_not_cached", "none")
	}
	return out, err
}

func TestRefreshTakesOnlyFilesThatOthersCannotChange(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, mode os.FileMode, data []byte) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, data, 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two, own := newKey(t, config(0)), newKey(t, config(0)), newKey(t, config(0))
	put("one.gpg", 0o644, public(t, one))
	put("same.gpg", 0o644, public(t, one))
	put("two.asc", 0o644, []byte(armored(t, openpgp.PublicKeyType, public(t, two))))
	put("group.gpg", 0o664, public(t, newKey(t, config(0))))
	put("world.gpg", 0o646, public(t, newKey(t, config(0))))
	put("damaged.gpg", 0o644, []byte("x"))
	put("other.gpg~", 0o644, public(t, newKey(t, config(0))))
	if err := os.Mkdir(filepath.Join(dir, "directory.gpg"), 0o755); err != nil {
		t.Fatal(err)
	}
	path, log := filepath.Join(t.TempDir(), "apt.gpg"), slog.New(slog.DiscardHandler)
	reader := NewReader(file(path))
	patterns, further := []string{filepath.Join(dir, "*.gpg"), filepath.Join(dir, "*.asc")}, put("own.keys", 0o600, public(t, own))
	if k, err := reader.Keys(); err != nil || k.Len() != 0 {
		t.Errorf("without a file: got %d keys (%v), want none", k.Len(), err)
	}
	for _, c := range []struct {
		name    string
		owner   int
		further []string
		keys    int
		code    string
	}{
		{"host", os.Getuid(), nil, 2, ""},
		{"host and own", os.Getuid(), []string{further}, 3, ""},
		{"files of another user", os.Getuid() + 1, nil, 0, ""},
		{"own", os.Getuid() + 1, []string{further}, 1, ""},
		{"own that others can change", os.Getuid(), []string{filepath.Join(dir, "world.gpg")}, 1, "package_keyring_invalid"},
		{"own that is missing", os.Getuid(), []string{filepath.Join(dir, "none")}, 1, "package_keyring_invalid"},
		{"own without a key", os.Getuid(), []string{filepath.Join(dir, "damaged.gpg")}, 1, "package_keyring_invalid"},
		{"host again", os.Getuid(), nil, 2, ""},
	} {
		err := refresh(path, patterns, c.owner, c.further, log)
		if fault.CodeOf(err) != c.code {
			t.Errorf("%s: got %v, want the code %q", c.name, err, c.code)
		}
		if k, err := reader.Keys(); err != nil || k.Len() != c.keys {
			t.Errorf("%s: got %d keys (%v), want %d", c.name, k.Len(), err, c.keys)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the file has the mode %v (%v), want 0644, because the gateway runs as another user", info.Mode(), err)
	}
	k, err := reader.Keys()
	if err != nil || k.Verify(text, sign(t, config(time.Hour), two), time.Now()) != nil {
		t.Errorf("a key of the file (%v) verifies nothing", err)
	}
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if k, err := reader.Keys(); err == nil {
		t.Errorf("damaged file: got %d keys, want an error", k.Len())
	}
}

func FuzzVerify(f *testing.F) {
	key, err := openpgp.NewEntity("a", "", "a@example.test", config(0))
	if err != nil {
		f.Fatal(err)
	}
	var public, good bytes.Buffer
	if err := errors.Join(key.Serialize(&public), openpgp.DetachSign(&good, []*openpgp.Entity{key}, bytes.NewReader(text), config(time.Hour))); err != nil {
		f.Fatal(err)
	}
	f.Add(public.Bytes(), text, good.Bytes())
	f.Add(public.Bytes(), []byte("x"), good.Bytes())
	f.Add([]byte("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n-----END PGP PUBLIC KEY BLOCK-----"), []byte{}, []byte{0x88, 0})
	trusted, err := Parse(public.Bytes())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, keys, content, signatures []byte) {
		if k, err := Parse(keys); err == nil {
			_ = k.Verify(content, signatures, time.Now())
		}
		// The private key is used only above, so only the text that it has signed can pass.
		if trusted.Verify(content, signatures, time.Now()) == nil && !bytes.Equal(content, text) {
			t.Errorf("%q passes with the signature %q", content, signatures)
		}
	})
}

// The keys are read again only if a file of them has changed, or if the result is missing.
func TestRefreshReadsOnlyWhatChanged(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "apt.gpg")
	source := filepath.Join(dir, "one.gpg")
	put := func(path string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(source, public(t, newKey(t, config(0))))
	stored := func() string {
		t.Helper()
		if err := refresh(path, []string{filepath.Join(dir, "*.gpg")}, os.Getuid(), nil, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := stored()
	put(path, []byte("mark"))
	if got := stored(); got != "mark" {
		t.Error("unchanged keys were read again")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := stored(); got != first {
		t.Error("missing keys were not written again")
	}
	put(path, []byte("mark"))
	if err := os.Chmod(source, 0o666); err != nil {
		t.Fatal(err)
	}
	if got := stored(); got != "" {
		t.Errorf("a file that others can change now still counts (%d bytes)", len(got))
	}
}
