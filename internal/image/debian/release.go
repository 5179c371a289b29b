package debian

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"pault.ag/go/debian/control"

	"github.com/crannog/crannog/internal/fault"
)

// release is the signed list of the archive's index files.
type release struct {
	suite string
	files map[string]file // by path below the suite's directory
}

// file has the known properties of a file before it is fetched.
type file struct {
	size   int64
	sha256 [32]byte
}

// maxRelease bounds the signed list of index files, in bytes.
const maxRelease = 4 << 20

// release fetches and verifies the list of index files. An attacker who controls the mirror or the
// connection to it can neither change the list nor replace it by that of another suite.
func (m *mirror) release(ctx context.Context, suite, keyring string) (*release, error) {
	if !plainName(suite) {
		return nil, fault.Newf(fault.Invalid, "debian_suite_invalid", "%.100q is not the name of a suite", suite)
	}
	keys, err := readKeyring(keyring)
	if err != nil {
		return nil, err
	}
	var signed bytes.Buffer
	if err := m.get(ctx, "dists/"+suite+"/InRelease", maxRelease, &signed); err != nil {
		return nil, err
	}
	text, err := verifiedText(signed.Bytes(), keys)
	if err != nil {
		return nil, err
	}
	return parseRelease(text, suite, time.Now())
}

// readKeyring reads OpenPGP keys, armored or not.
func readKeyring(name string) (openpgp.EntityList, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, CodeSignature, "the keys that sign Debian's archive cannot be read: "+err.Error()).
			WithHint("install the package debian-archive-keyring, or name a file of keys with --keyring")
	}
	read := openpgp.ReadKeyRing
	if bytes.HasPrefix(data, []byte("-----BEGIN")) {
		read = openpgp.ReadArmoredKeyRing
	}
	keys, err := read(bytes.NewReader(data))
	if err != nil || len(keys) == 0 {
		return nil, fault.Wrap(errors.Join(err, errors.New("no key")), fault.Invalid, CodeSignature, name+" is not a file of OpenPGP keys")
	}
	return keys, nil
}

// verifiedText returns the text that a key of the keyring has signed. The text before and after the
// signed one is not returned.
func verifiedText(signed []byte, keys openpgp.EntityList) ([]byte, error) {
	block, _ := clearsign.Decode(signed)
	if block == nil {
		return nil, fault.New(fault.Denied, CodeSignature, "the mirror's list of index files has no signature")
	}
	if _, err := block.VerifySignature(keys, nil); err != nil {
		return nil, fault.Wrap(err, fault.Denied, CodeSignature, "the mirror's list of index files has no valid signature of a known key: "+err.Error())
	}
	return block.Plaintext, nil
}

// parseRelease parses the list of a suite. It rejects a list that is no longer valid.
func parseRelease(text []byte, suite string, now time.Time) (*release, error) {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Denied, CodeSignature, "the mirror's list of index files "+fmt.Sprintf(format, args...))
	}
	reader, err := control.NewParagraphReader(bytes.NewReader(text), nil)
	if err != nil {
		return nil, err
	}
	p, err := reader.Next()
	if err != nil {
		return nil, bad("cannot be read: %v", err)
	}
	if p.Values["Codename"] != suite && p.Values["Suite"] != suite {
		return nil, bad("is of the suite %.50q, not %s", p.Values["Codename"], suite)
	}
	// A mirror could otherwise offer a signed list with known vulnerabilities forever.
	if until := p.Values["Valid-Until"]; until != "" {
		end, err := time.Parse("Mon, 02 Jan 2006 15:04:05 MST", until)
		if err != nil || now.After(end) {
			return nil, bad("is no longer valid: it was valid until %.60q", until)
		}
	}
	r := &release{suite: suite, files: map[string]file{}}
	for lines := bufio.NewScanner(strings.NewReader(p.Values["SHA256"])); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 3 {
			return nil, bad("has the line %.100q", lines.Text())
		}
		f, err := fileOf(fields[1], fields[0])
		if err != nil {
			return nil, bad("has the line %.100q", lines.Text())
		}
		r.files[fields[2]] = f
	}
	return r, nil
}

// fileOf parses the size and the digest of a file.
func fileOf(size, sum string) (f file, err error) {
	if f.size, err = strconv.ParseInt(size, 10, 64); err != nil {
		return f, err
	}
	raw, err := hex.DecodeString(sum)
	if err != nil || len(raw) != len(f.sha256) || f.size < 0 {
		return f, errors.Join(err, io.ErrUnexpectedEOF)
	}
	copy(f.sha256[:], raw)
	return f, nil
}

// plainName reports whether a text can be one element of a path and of a shell command.
func plainName(text string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+-_~:%"
	return text != "" && text[0] != '.' && text[0] != '-' && strings.Trim(text, allowed) == ""
}
