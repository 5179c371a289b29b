// Package oci owns the cache's knowledge of registries of container images: which request is for
// which manifest or blob, which manifests can be served, and which images have a digest.
package oci

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/crannog/crannog/internal/packages"
)

// Protocol is the distribution API of OCI registries.
type Protocol struct {
	mu     sync.Mutex
	images map[string]*repository // by key
}

// New returns the protocol.
func New() *Protocol { return &Protocol{images: map[string]*repository{}} }

// kind is what a request reads.
type kind int

const (
	byTag kind = iota + 1
	byDigest
	blob
	tags
	referrers
)

// request is a parsed path.
type request struct {
	kind kind
	host string // of the registry, without a port
	name string // of the repository on the registry
	ref  string // tag or digest
}

// hub is the name of Docker Hub in names of packages, as people write it.
const hub = "docker.io"

// hubHosts are the hosts of Docker Hub. They have one name, because a rule for one of them could be
// bypassed through another.
var hubHosts = map[string]bool{hub: true, "index.docker.io": true, "registry-1.docker.io": true, "registry.hub.docker.com": true}

const (
	maxName = 255
	maxPath = 1 << 10
)

// Forms of names. Anything else is refused, because the registry might read it in another way.
var (
	names = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)
	})
	tagForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`) })
)

// services are the paths that serve no content: the check of the API, the catalogue, searches, and
// the token services of registries on their own hosts. Other paths are refused, because a registry
// could serve images there.
var services = map[string]bool{
	"/v2": true, "/v2/": true, "/v2/_catalog": true, "/v2/auth": true, "/v2/token": true, "/token": true, "/token/": true,
	"/service/token": true, "/jwt/auth": true, "/v1/_ping": true, "/v1/search": true,
}

// digest reads a digest. Only SHA-256 is supported: the record of images names contents by it, and
// a second name of one content would bypass a rule about the first.
func digest(text string) (packages.Digest, bool) {
	sum, ok := strings.CutPrefix(text, "sha256:")
	if !ok || strings.ToLower(sum) != sum {
		return packages.Digest{}, false
	}
	return packages.HexDigest("sha256", sum)
}

func hostOf(origin string) string {
	u, err := url.Parse(origin)
	if err != nil {
		return ""
	}
	host := strings.ToLower(u.Hostname())
	if hubHosts[host] {
		return hub
	}
	return host
}

// parse returns what a path is for, or false if it is for no image.
func parse(origin, escaped string) (request, bool) {
	plain, err := url.PathUnescape(escaped)
	if err != nil || len(escaped) > maxPath || strings.Contains(strings.ToLower(escaped), "%2f") {
		return request{}, false
	}
	rest, ok := strings.CutPrefix(plain, "/v2/")
	parts := strings.Split(rest, "/")
	n := len(parts)
	r := request{host: hostOf(origin)}
	if !ok || n < 3 || r.host == "" {
		return request{}, false
	}
	r.name, r.ref = strings.Join(parts[:n-2], "/"), parts[n-1]
	_, hashed := digest(r.ref)
	switch {
	case parts[n-2] == "manifests" && hashed:
		r.kind = byDigest
	case parts[n-2] == "manifests" && tagForm().MatchString(r.ref):
		r.kind = byTag
	case parts[n-2] == "blobs" && hashed:
		r.kind = blob
	case parts[n-2] == "referrers" && hashed:
		r.kind = referrers
	case parts[n-2] == "tags" && r.ref == "list":
		r.kind, r.ref = tags, ""
	default:
		return request{}, false
	}
	if len(r.name) > maxName || !names().MatchString(r.name) {
		return request{}, false
	}
	if r.host == hub && !strings.Contains(r.name, "/") {
		// Official images have two names, of which a rule needs to know only the long one.
		r.name = "library/" + r.name
	}
	return r, true
}

// isUpload reports whether a path is that of an upload. Clients read its state while they push.
func isUpload(escaped string) bool {
	parts := strings.Split(escaped, "/")
	n := len(parts)
	return n >= 6 && parts[1] == "v2" && parts[n-3] == "blobs" && parts[n-2] == "uploads" && parts[n-1] != "" &&
		!strings.Contains(escaped, "%") && names().MatchString(strings.Join(parts[2:n-3], "/"))
}

// Parse implements packages.Protocol.
func (*Protocol) Parse(origin, escaped string) packages.Target {
	t := packages.Target{Origin: origin, Path: escaped}
	r, ok := parse(origin, escaped)
	if !ok {
		if services[escaped] || isUpload(escaped) {
			t.Kind = packages.Service
		}
		return t
	}
	t.Name = r.host + "/" + r.name
	switch r.kind {
	case byTag:
		t.Kind, t.Version = packages.Document, r.ref
	case tags, referrers:
		t.Kind = packages.Document
	default:
		t.Kind, t.Version = packages.OfFile, r.ref
	}
	return t
}

// at returns the URL of a part of the repository. It is made of what was parsed, so that two
// spellings of a path lead to one entry.
func (r request) at(origin, part string) string { return origin + "/v2/" + r.name + "/" + part }

// Listing implements packages.Protocol.
func (p *Protocol) Listing(ctx context.Context, s packages.Source, t packages.Target, keep packages.Keep) (packages.Listing, error) {
	r, _ := parse(t.Origin, t.Path)
	switch r.kind {
	case tags:
		return listTags(ctx, s, t, r, keep)
	case referrers:
		return listReferrers(ctx, s, t, r, keep)
	case byTag, byDigest, blob:
	}
	// Nothing is fetched for a tag that the policy keeps out.
	if !keep(r.ref, packages.Version{}) {
		return packages.Listing{}, nil
	}
	text, err := s.Text(ctx, packages.Query{URL: r.at(t.Origin, "manifests/"+r.ref), Accept: accepted, Revalidate: true})
	if err != nil {
		return packages.Listing{}, err
	}
	m, err := read(ctx, s, text.Body)
	if err != nil {
		return packages.Listing{}, err
	}
	sum := "sha256:" + text.SHA256
	if p.learn(ctx, s, keyOf(t.Origin, r), image{Digest: sum, Tags: []string{r.ref}, Parts: m.parts}) {
		s.Store(ctx, storedKey(t.Origin, r, sum), text.Body)
	}
	return packages.Listing{Text: text.Body, Type: m.mediaType, Remaining: 1, Digest: sum}, nil
}

// File implements packages.Protocol.
func (p *Protocol) File(ctx context.Context, s packages.Source, t packages.Target) (packages.File, error) {
	r, _ := parse(t.Origin, t.Path)
	sum, _ := digest(r.ref)
	key := keyOf(t.Origin, r)
	f := packages.File{Version: r.ref, About: packages.Version{Digest: sum}, Digest: r.ref}
	if r.kind == blob {
		f.URL, f.Type, f.Images = r.at(t.Origin, "blobs/"+r.ref), "application/octet-stream", p.imagesOf(s, key, r.ref)
		return f, nil
	}
	f.URL = r.at(t.Origin, "manifests/"+r.ref)
	text, err := manifestText(ctx, s, f.URL, storedKey(t.Origin, r, r.ref), sum)
	if err != nil {
		return f, err
	}
	m, err := read(ctx, s, text)
	if err != nil {
		return f, err
	}
	p.learn(ctx, s, key, image{Digest: r.ref, Parts: m.parts})
	f.Text, f.Type, f.Images = text, m.mediaType, p.imagesOf(s, key, r.ref)
	return f, nil
}

// storedKey is the key of a manifest that was fetched by a tag. It is not a URL.
func storedKey(origin string, r request, sum string) string {
	return "oci manifest " + keyOf(origin, r) + "@" + sum
}

// manifestText returns the manifest of a digest. A client that has resolved a tag asks for the
// digest next, so a manifest that came by a tag is not fetched again.
func manifestText(ctx context.Context, s packages.Source, at, key string, sum packages.Digest) ([]byte, error) {
	if text, err := s.Stored(key); err == nil {
		h := sum.Hash()
		h.Write(text)
		if sum.Matches(h.Sum(nil)) {
			return text, nil
		}
	}
	text, err := s.Text(ctx, packages.Query{URL: at, Accept: accepted, Life: packages.Forever, Digest: sum})
	return text.Body, err
}
