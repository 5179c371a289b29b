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

	"pault.ag/go/debian/control"
)

// Release is the signed list of an archive's index files.
type Release struct {
	Suite string
	Date  time.Time // when the archive made the list; zero if it does not say
	// ValidUntil is when the list ends; zero if it does not say.
	ValidUntil time.Time
	// Distribution is the release of the distribution, as OSV names it: such as Debian:12 or
	// Ubuntu:22.04. It is empty for archives of others.
	Distribution string
	// ByHash is set if the archive also serves index files under their digests.
	ByHash bool
	Files  map[string]File // by path below the suite's directory

	// unverified is the reason why nothing vouches for the list, if the policy permits it.
	unverified string
}

// current returns an error if the list is no longer valid. A mirror could otherwise offer a signed
// list with known vulnerabilities forever.
func (r *Release) current(now time.Time) error {
	if !r.ValidUntil.IsZero() && now.After(r.ValidUntil) {
		return fmt.Errorf("is no longer valid: its Valid-Until is %s, and somebody could withhold a newer one", r.ValidUntil.UTC().Format(time.RFC3339))
	}
	return nil
}

// File has the known properties of a file before it is fetched.
type File struct {
	Size   int64
	SHA256 [32]byte
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
	r := &Release{Suite: suite, ByHash: p.Values["Acquire-By-Hash"] == "yes", Files: map[string]File{}}
	if until := p.Values["Valid-Until"]; until != "" {
		if r.ValidUntil, err = time.Parse(dateLayout, until); err != nil {
			return nil, fmt.Errorf("has an invalid time in Valid-Until: %.60q", until)
		}
	}
	if err := r.current(now); err != nil {
		return nil, err
	}
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
