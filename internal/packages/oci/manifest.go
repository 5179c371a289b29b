package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/crannog/crannog/internal/packages"
)

// Media types of manifests.
const (
	ociIndex       = "application/vnd.oci.image.index.v1+json"
	ociManifest    = "application/vnd.oci.image.manifest.v1+json"
	dockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
)

// accepted is the header Accept of each fetch. A registry may convert a manifest to what a client
// accepts, so the header of one client must not decide what others get.
const accepted = ociIndex + ", " + dockerList + ", " + ociManifest + ", " + dockerManifest

// Limits of a manifest.
const (
	maxManifest = 4 << 20
	maxParts    = 2000
)

// manifest is a manifest or an index.
type manifest struct {
	mediaType string
	// parts are the digests of what it names: of an image its configuration and layers, of an index
	// its manifests.
	parts []string
}

type descriptor struct {
	Digest string `json:"digest"`
}

// document has the fields of manifests and indexes.
type document struct {
	Schema    int             `json:"schemaVersion"`
	MediaType string          `json:"mediaType"`
	Manifests *[]descriptor   `json:"manifests"`
	Config    *descriptor     `json:"config"`
	Layers    *[]descriptor   `json:"layers"`
	FSLayers  json.RawMessage `json:"fsLayers"`
	Blobs     json.RawMessage `json:"blobs"`
}

// parseManifest reads a manifest or an index. The media type comes from the text alone, so that the
// registry cannot have one text taken for two things.
func parseManifest(text []byte) (manifest, error) {
	var d document
	if len(text) > maxManifest {
		return manifest{}, errors.New("it is larger than 4 MiB")
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return manifest{}, fmt.Errorf("it is no manifest: %w", err)
	}
	if d.Schema != 2 || d.FSLayers != nil || d.Blobs != nil {
		return manifest{}, fmt.Errorf("its schema (schemaVersion %d) is not supported; the cache serves images of OCI and of Docker's schema 2", d.Schema)
	}
	index := d.Manifests != nil
	// A text that is an index for one client and an image for another could show the policy one
	// content and the client another one (CVE-2021-41190).
	if index == (d.Config != nil || d.Layers != nil) {
		return manifest{}, errors.New("it is not either an image or an index")
	}
	m := manifest{mediaType: d.MediaType}
	var list []descriptor
	if index {
		list = *d.Manifests
	} else {
		if d.Config == nil || d.Layers == nil {
			return manifest{}, errors.New("it has no configuration or no layers")
		}
		list = append([]descriptor{*d.Config}, *d.Layers...)
	}
	switch {
	case d.MediaType == "" && index:
		m.mediaType = ociIndex
	case d.MediaType == "":
		m.mediaType = ociManifest
	case index && d.MediaType != ociIndex && d.MediaType != dockerList, !index && d.MediaType != ociManifest && d.MediaType != dockerManifest:
		return manifest{}, fmt.Errorf("its media type %.100q is not supported or not that of its content", d.MediaType)
	}
	if len(list) > maxParts {
		return manifest{}, fmt.Errorf("it names more than %d contents", maxParts)
	}
	known := map[string]bool{}
	for _, p := range list {
		// A content with a digest of another algorithm cannot be requested from the cache.
		if _, ok := digest(p.Digest); ok && !known[p.Digest] {
			known[p.Digest] = true
			m.parts = append(m.parts, p.Digest)
		}
	}
	return m, nil
}

// read parses a manifest as one of few at the same time.
func read(ctx context.Context, s packages.Source, text []byte) (manifest, error) {
	m, err := packages.Parsed(ctx, s, "", func() (manifest, error) { return parseManifest(text) })
	if err != nil && ctx.Err() == nil {
		return m, packages.Unreadable(err)
	}
	return m, err
}

// listReferrers lists what refers to a manifest, such as signatures, without what the policy keeps
// out. An empty list is passed on, because it means that there is nothing.
func listReferrers(ctx context.Context, s packages.Source, t packages.Target, r request, keep packages.Keep) (packages.Listing, error) {
	text, err := s.Text(ctx, packages.Query{URL: r.at(t.Origin, "referrers/"+r.ref), Accept: ociIndex})
	if err != nil {
		return packages.Listing{}, err
	}
	var d struct {
		Schema    int               `json:"schemaVersion"`
		MediaType string            `json:"mediaType"`
		Manifests []json.RawMessage `json:"manifests"`
	}
	d.Manifests = []json.RawMessage{}
	if err := json.Unmarshal(text.Body, &d); err != nil || d.Schema != 2 || len(d.Manifests) > maxParts {
		return packages.Listing{}, packages.Unreadable(errors.New("it is no list of referrers"))
	}
	left := []json.RawMessage{}
	for _, one := range d.Manifests {
		var e descriptor
		if json.Unmarshal(one, &e) != nil {
			return packages.Listing{}, packages.Unreadable(errors.New("it has an invalid entry"))
		}
		if _, ok := digest(e.Digest); ok && keep(e.Digest, packages.Version{}) {
			left = append(left, one)
		}
	}
	d.MediaType, d.Manifests = ociIndex, left
	out, err := json.Marshal(d)
	return packages.Listing{Text: out, Type: ociIndex, Remaining: 1}, err
}

// Limits of lists of tags.
const (
	maxTags  = 100_000
	maxPages = 64
	pageSize = "1000"
)

// listTags lists all tags on one page, without those that the policy keeps out.
func listTags(ctx context.Context, s packages.Source, t packages.Target, r request, keep packages.Keep) (packages.Listing, error) {
	known, left := map[string]bool{}, []string{}
	query := "?n=" + pageSize
	for range maxPages {
		text, err := s.Text(ctx, packages.Query{URL: r.at(t.Origin, "tags/list") + query})
		if err != nil {
			return packages.Listing{}, err
		}
		var page struct {
			Tags []string `json:"tags"`
		}
		if err := json.Unmarshal(text.Body, &page); err != nil {
			return packages.Listing{}, packages.Unreadable(err)
		}
		last := ""
		for _, tag := range page.Tags {
			if known[tag] || !tagForm().MatchString(tag) {
				continue
			}
			if len(known) == maxTags {
				return packages.Listing{}, packages.Unreadable(fmt.Errorf("it has more than %d tags", maxTags))
			}
			known[tag], last = true, tag
			if keep(tag, packages.Version{}) {
				left = append(left, tag)
			}
		}
		// Registries have pages of different sizes. Only a page with nothing new is certainly the
		// last one.
		if last == "" {
			break
		}
		query = "?n=" + pageSize + "&last=" + last
	}
	out, err := json.Marshal(map[string]any{"name": r.name, "tags": left})
	remaining := len(left)
	if len(known) == 0 {
		remaining = 1
	}
	return packages.Listing{Text: out, Type: "application/json", Remaining: remaining}, err
}
