package snapshot

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind is how a part of an image is stored.
type Kind string

// Kinds of parts.
const (
	// Small is a file of at most 256 MiB, which is read completely before each use.
	Small Kind = "small"
	// Pages is a file of memory pages. Images of one lineage share equal pages.
	Pages Kind = "pages"
	// Blob is any other file.
	Blob Kind = "blob"
)

// Part is a file of an image, under the name that its writer gave it. Exactly one part of an image
// is not small.
type Part struct {
	Name string
	Kind Kind
}

// maxParts limits the small parts of an image, so that a manifest stays small.
const maxParts = 16

// validName limits names from callers to one path element that is not used by this package.
func validName(name string) error {
	ok := len(name) >= 1 && len(name) <= 64 && name[0] != '.' && name[0] != '-' && name != manifestFile && name != indexFile
	for _, c := range []byte(strings.ToLower(name)) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')
	}
	if !ok {
		return fmt.Errorf("%q is not a name of a part", name)
	}
	return nil
}

// checkParts rejects an invalid declaration of parts.
func checkParts(parts []Part) error {
	bulks := 0
	for i, p := range parts {
		if err := validName(p.Name); err != nil {
			return err
		}
		if slices.ContainsFunc(parts[:i], func(o Part) bool { return o.Name == p.Name }) {
			return fmt.Errorf("two parts have the name %q", p.Name)
		}
		switch p.Kind {
		case Small:
		case Pages, Blob:
			bulks++
		default:
			return fmt.Errorf("the part %s has the kind %q", p.Name, p.Kind)
		}
	}
	if bulks != 1 || len(parts) > maxParts+1 {
		return fmt.Errorf("%d parts are declared, of which %d are not small", len(parts), bulks)
	}
	return nil
}

// firstFormat is the format of manifests in which parts had no names: an image had two small parts
// and pages, or one blob.
const firstFormat = 1

// firstManifest is a manifest of the first format.
type firstManifest struct {
	Format int    `json:"format"`
	ID     string `json:"id"`
	Parent string `json:"parent,omitempty"`
	Made   int64  `json:"made"`
	State  *part  `json:"state,omitempty"`
	Meta   *part  `json:"meta,omitempty"`
	Bulk   bulk   `json:"bulk"`
}

// named converts the manifest to the current format. The names come from the declaration whose
// pages have the same name as this image's.
func (f firstManifest) named(declared [][]Part) (manifest, error) {
	m := manifest{Format: manifestFormat, ID: f.ID, Parent: f.Parent, Made: f.Made, Bulk: f.Bulk}
	var small []string
	m.Bulk.Kind = Blob
	for _, parts := range declared {
		if slices.Contains(parts, Part{Name: f.Bulk.Name, Kind: Pages}) {
			small, m.Bulk.Kind = nil, Pages
			for _, p := range parts {
				if p.Kind == Small {
					small = append(small, p.Name)
				}
			}
		}
	}
	have := []*part{f.State, f.Meta}
	if m.Bulk.Kind == Blob && f.State == nil && f.Meta == nil {
		return m, nil
	}
	if len(small) != len(have) || slices.Contains(have, nil) {
		return m, errors.New("manifest: parts whose names are not known")
	}
	for i, p := range have {
		m.Parts = append(m.Parts, part{Name: small[i], Bytes: p.Bytes, SHA256: p.SHA256})
	}
	return m, nil
}

// reader reads manifests.
type reader struct {
	boot     string   // of this machine
	declared [][]Part // by the writers of images
}

// decode decodes a manifest without authentication.
func (r reader) decode(data []byte) (manifest, error) { return decodeManifest(data, r.declared...) }
