package maven

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // Maven's clients compare this checksum
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/packages"
)

const (
	maxVersions = 20_000
	// maxDated is the number of versions of a list whose times are requested.
	maxDated = 24
)

// versions is a list of versions, as maven-metadata.xml has it.
type versions struct {
	XMLName  xml.Name `xml:"metadata"`
	Group    string   `xml:"groupId"`
	Artifact string   `xml:"artifactId"`
	Latest   string   `xml:"versioning>latest,omitempty"`
	Release  string   `xml:"versioning>release,omitempty"`
	Versions []string `xml:"versioning>versions>version"`
	Updated  string   `xml:"versioning>lastUpdated,omitempty"`
}

func readVersions(artifact string, text []byte) (*versions, error) {
	var v versions
	if err := xml.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	if len(v.Versions) > maxVersions {
		return nil, errors.New("it has too many versions")
	}
	if len(v.Versions) > 0 && v.Group+":"+v.Artifact != artifact {
		return nil, errors.New("it is about another artifact")
	}
	return &v, nil
}

// Listing implements packages.Protocol. A request for the checksum of a list gets that of the list
// that is left.
func (p Protocol) Listing(ctx context.Context, s packages.Source, t packages.Target, keep packages.Keep) (packages.Listing, error) {
	r, _ := parse(t.Path)
	text, err := s.Text(ctx, packages.Query{URL: t.Origin + r.file})
	if err != nil {
		return packages.Listing{}, err
	}
	v, err := packages.Parsed(ctx, s, r.file+" "+text.SHA256, func() (*versions, error) { return readVersions(t.Name, text.Body) })
	if err != nil {
		return packages.Listing{}, packages.Unreadable(err)
	}
	out := packages.Listing{Text: text.Body, Type: "text/xml", Remaining: 1}
	kept, err := p.kept(ctx, s, t, r, v, keep)
	if err != nil {
		return out, err
	}
	if len(kept) < len(v.Versions) {
		out.Remaining = len(kept)
		if out.Text, err = v.without(kept); err != nil {
			return out, packages.Unreadable(err)
		}
	}
	if r.checksum != "" {
		out.Type, out.Text = "text/plain", []byte(sumOf(r.checksum, out.Text))
	}
	return out, nil
}

// kept returns the versions that keep accepts. The list is in the order of publication. The age of
// all but the last ones is judged when their files are requested.
func (p Protocol) kept(ctx context.Context, s packages.Source, t packages.Target, r request, v *versions, keep packages.Keep) (kept []string, err error) {
	_, artifact, _ := strings.Cut(t.Name, ":")
	for n, id := range v.Versions {
		about := packages.Version{Published: time.Unix(0, 0)}
		if s.Dated() && n >= len(v.Versions)-maxDated {
			pom := t.Origin + strings.TrimSuffix(r.file, metadata) + id + "/" + artifact + "-" + id + ".pom"
			if about, err = p.about(ctx, s, pom); err != nil {
				return nil, err
			}
		}
		if keep(id, about) {
			kept = append(kept, id)
		}
	}
	return kept, nil
}

// without returns the list with only some of its versions.
func (v *versions) without(kept []string) ([]byte, error) {
	left := *v
	left.Versions, left.Latest, left.Release = kept, "", ""
	if len(kept) > 0 {
		left.Latest, left.Release = kept[len(kept)-1], kept[len(kept)-1]
	}
	var out bytes.Buffer
	out.WriteString(xml.Header)
	err := xml.NewEncoder(&out).Encode(left)
	return out.Bytes(), err
}

func sumOf(algorithm string, text []byte) string {
	switch algorithm {
	case "sha512":
		sum := sha512.Sum512(text)
		return hex.EncodeToString(sum[:])
	case "sha256":
		sum := sha256.Sum256(text)
		return hex.EncodeToString(sum[:])
	}
	sum := sha1.Sum(text) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}
