package oci

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"

	"github.com/crannog/crannog/internal/packages"
)

// A client reads a tag once, and everything below it by digest. So that a policy about tags also
// decides about digests, the cache remembers for each repository which manifests it has served, by
// which tags they were known, and what they name.

// Limits of what is remembered.
const (
	maxRepositories = 64 // in memory
	maxImages       = 512
	maxImageTags    = 32
	maxAllParts     = 20_000
	// maxDepth is the depth of a content below an index: index, image, layer. Indexes may be nested
	// once.
	maxDepth = 3
	// maxChains limits how many images of one content are compared with a policy.
	maxChains = 20_000
)

// image is a manifest or an index that the cache has served.
type image struct {
	Digest string   `json:"digest"`
	Tags   []string `json:"tags,omitempty"`
	Parts  []string `json:"parts,omitempty"`
}

// repository is what is known about a repository, the longest known image first. It is not
// changed, but replaced.
type repository struct {
	Images []image `json:"images"`
	// parents are the indexes in Images of the images that name a content.
	parents map[string][]int
}

func (r *repository) link() *repository {
	r.parents = map[string][]int{}
	for i, m := range r.Images {
		for _, part := range m.Parts {
			r.parents[part] = append(r.parents[part], i)
		}
	}
	return r
}

// keyOf returns the key of a repository's record. Hosts of Docker Hub have one. Ports and schemes
// are kept apart, because another server answers there.
func keyOf(origin string, r request) string {
	u, err := url.Parse(origin)
	if err != nil {
		return origin + "/" + r.name
	}
	host := r.host
	if port := u.Port(); port != "" {
		host += ":" + port
	}
	return u.Scheme + "://" + host + "/" + r.name
}

func recordKey(key string) string { return "oci images " + key }

// known returns the record of a repository. p.mu must be held.
func (p *Protocol) known(s packages.Source, key string) *repository {
	if found := p.images[key]; found != nil {
		return found
	}
	r := &repository{}
	text, err := s.Stored(recordKey(key))
	if err == nil && json.Unmarshal(text, r) != nil || len(r.Images) > maxImages {
		r = &repository{}
	}
	p.keep(key, r.link())
	return r
}

func (p *Protocol) keep(key string, r *repository) {
	for other := range p.images {
		if len(p.images) < maxRepositories || p.images[key] != nil {
			break
		}
		delete(p.images, other)
	}
	p.images[key] = r
}

// learn remembers an image, and reports whether it was unknown.
func (p *Protocol) learn(ctx context.Context, s packages.Source, key string, m image) bool {
	p.mu.Lock()
	old := p.known(s, key)
	at := slices.IndexFunc(old.Images, func(o image) bool { return o.Digest == m.Digest })
	if at >= 0 && !slices.ContainsFunc(m.Tags, func(t string) bool { return !slices.Contains(old.Images[at].Tags, t) }) {
		p.mu.Unlock()
		return false
	}
	next := &repository{Images: slices.Clone(old.Images)}
	if at >= 0 {
		m.Tags = append(slices.Clone(old.Images[at].Tags), m.Tags...)
		m.Tags = m.Tags[max(0, len(m.Tags)-maxImageTags):]
		next.Images = slices.Delete(next.Images, at, at+1)
	}
	next.Images = append(next.Images, m)
	next.shrink()
	p.keep(key, next.link())
	p.mu.Unlock()
	if text, err := json.Marshal(next); err == nil {
		s.Store(ctx, recordKey(key), text)
	}
	return at < 0
}

// shrink forgets the oldest images until the limits hold.
func (r *repository) shrink() {
	total := 0
	for _, m := range r.Images {
		total += len(m.Parts)
	}
	for len(r.Images) > maxImages || total > maxAllParts && len(r.Images) > 1 {
		total -= len(r.Images[0].Parts)
		r.Images = r.Images[1:]
	}
}

// imagesOf returns the images that have a content, each as the versions by which it is known: tags,
// and the digests of the manifests above the content.
func (p *Protocol) imagesOf(s packages.Source, key, sum string) [][]string {
	p.mu.Lock()
	r := p.known(s, key)
	p.mu.Unlock()
	var out [][]string
	if at := slices.IndexFunc(r.Images, func(m image) bool { return m.Digest == sum }); at >= 0 {
		for _, tag := range r.Images[at].Tags {
			out = append(out, []string{tag})
		}
	}
	return r.above(out, sum, nil, 0)
}

// above appends the images that name a content. below are the digests between the image and the
// first content.
func (r *repository) above(out [][]string, sum string, below []string, depth int) [][]string {
	if depth == maxDepth {
		return out
	}
	for _, i := range r.parents[sum] {
		if len(out) >= maxChains {
			break
		}
		m := r.Images[i]
		chain := append(slices.Clone(below), m.Digest)
		for _, tag := range m.Tags {
			out = append(out, append(slices.Clone(chain), tag))
		}
		before := len(out)
		out = r.above(out, m.Digest, chain, depth+1)
		if len(m.Tags) == 0 && len(out) == before {
			out = append(out, chain)
		}
	}
	return out
}
