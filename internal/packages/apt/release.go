package apt

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"pault.ag/go/debian/control"
)

// Release is the signed list of an archive's index files.
type Release struct {
	Suite string
	Date  time.Time // when the archive made the list; zero if it does not say
	// Distribution is the release of the distribution, as OSV names it: such as Debian:12 or
	// Ubuntu:22.04. It is empty for archives of others.
	Distribution string
	// ByHash is set if the archive also serves index files under their digests.
	ByHash bool
	Files  map[string]File // by path below the suite's directory
}

// File has the known properties of a file before it is fetched.
type File struct {
	Size   int64
	SHA256 [32]byte
}

// SignedText returns the text that a key of the keyring has signed. The text before and after the
// signed one is not returned. Without a keyring, the signature is not verified.
func SignedText(signed []byte, keys openpgp.EntityList) ([]byte, error) {
	block, _ := clearsign.Decode(signed)
	if block == nil {
		return nil, errors.New("has no signature")
	}
	if keys != nil {
		if _, err := block.VerifySignature(keys, nil); err != nil {
			return nil, fmt.Errorf("has no valid signature of a known key: %w", err)
		}
	}
	return block.Plaintext, nil
}

// dateLayout is the form of dates in a Release.
const dateLayout = "Mon, 02 Jan 2006 15:04:05 MST"

// ParseRelease parses the list of a suite. It rejects a list that is no longer valid. The texts of
// its errors continue "the list of index files".
func ParseRelease(text []byte, suite string, now time.Time) (*Release, error) {
	reader, err := control.NewParagraphReader(bytes.NewReader(text), nil)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	p, err := reader.Next()
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if p.Values["Codename"] != suite && p.Values["Suite"] != suite {
		return nil, fmt.Errorf("is of the suite %.50q, not %s", p.Values["Codename"], suite)
	}
	// A mirror could otherwise offer a signed list with known vulnerabilities forever.
	if until := p.Values["Valid-Until"]; until != "" {
		end, err := time.Parse(dateLayout, until)
		if err != nil || now.After(end) {
			return nil, fmt.Errorf("is no longer valid: it was valid until %.60q", until)
		}
	}
	r := &Release{Suite: suite, ByHash: p.Values["Acquire-By-Hash"] == "yes", Files: map[string]File{}}
	if date, err := time.Parse(dateLayout, p.Values["Date"]); err == nil {
		r.Date = date
	}
	r.Distribution = distributionOf(p.Values["Origin"], p.Values["Version"])
	for lines := bufio.NewScanner(strings.NewReader(p.Values["SHA256"])); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("has the line %.100q", lines.Text())
		}
		f, err := ParseFile(fields[1], fields[0])
		if err != nil {
			return nil, fmt.Errorf("has the line %.100q", lines.Text())
		}
		r.Files[fields[2]] = f
	}
	return r, nil
}

// distributionOf returns the release of a distribution. Point releases of Debian, such as 12.5, are
// the release 12. Without a number, as in Debian's unstable suite, it is the distribution's name.
func distributionOf(origin, version string) string {
	switch {
	case origin != "Debian" && origin != "Ubuntu":
		return ""
	case version == "" || len(version) > 16 || strings.Trim(version, "0123456789.") != "":
		return origin
	case origin == "Debian":
		version, _, _ = strings.Cut(version, ".")
	}
	return origin + ":" + version
}

// ParseFile parses the size and the digest of a file.
func ParseFile(size, sum string) (f File, err error) {
	if f.Size, err = strconv.ParseInt(size, 10, 64); err != nil {
		return f, err
	}
	raw, err := hex.DecodeString(sum)
	if err != nil || len(raw) != len(f.SHA256) || f.Size < 0 {
		return f, errors.Join(err, io.ErrUnexpectedEOF)
	}
	copy(f.SHA256[:], raw)
	return f, nil
}
