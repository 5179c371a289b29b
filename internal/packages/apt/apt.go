// Package apt owns the cache's knowledge of Debian archives: which request is for which file, and
// how an archive's lists vouch for index files and packages.
package apt

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/packages"
)

// Protocol is the protocol of Debian archives.
type Protocol struct {
	now  func() time.Time
	keys Keyring

	mu      sync.Mutex
	indexes map[string]*index // parsed lists of packages, by digest
	used    map[string][]list // lists that clients have requested, by archive
}

// New returns the protocol. now returns the time, so that tests can set it.
func New(now func() time.Time, keys Keyring) *Protocol {
	return &Protocol{now: now, keys: keys, indexes: map[string]*index{}, used: map[string][]list{}}
}

const (
	// maxIndexes limits how many lists of packages are parsed in memory, and maxLists how many are
	// known for an archive.
	maxIndexes = 8
	maxLists   = 64
	maxPath    = 1 << 10
)

// list is a list of packages: Path below the directory of a suite.
type list struct {
	Suite string `json:"suite"`
	Path  string `json:"path"`
}

// request is a parsed path.
type request struct {
	base  string // of the archive, such as /debian
	suite string
	path  string // below the suite's directory, or with pool below the archive
	pool  bool
}

func parse(escaped string) (request, bool) {
	plain, err := url.PathUnescape(escaped)
	if err != nil || len(plain) > maxPath || plain != path.Clean(plain) || plain == "/" {
		return request{}, false
	}
	if base, rest, ok := strings.Cut(plain, "/dists/"); ok {
		suite, file, ok := strings.Cut(rest, "/")
		return request{base: base, suite: suite, path: file}, ok && suite != "" && file != ""
	}
	if base, rest, ok := strings.Cut(plain, "/pool/"); ok {
		return request{base: base, path: "pool/" + rest, pool: true}, strings.HasSuffix(rest, ".deb")
	}
	return request{}, false
}

// Parse implements packages.Protocol.
func (p *Protocol) Parse(origin, escaped string) packages.Target {
	t := packages.Target{Origin: origin, Path: escaped}
	r, ok := parse(escaped)
	switch {
	case !ok:
	case r.pool:
		// The name before the first underscore is the package's.
		name, _, found := strings.Cut(path.Base(r.path), "_")
		if found && name != "" {
			t.Kind, t.Name = packages.OfFile, name
		}
	case r.path == "InRelease":
		t.Kind, t.Name, t.Shared = packages.Document, "dists/"+r.suite, true
	case r.path == "Release" || r.path == "Release.gpg":
		// Only the list with its own signature is served. Clients prefer it.
	default:
		t.Kind, t.Name, t.Shared = packages.OfFile, "dists/"+r.suite, true
	}
	return t
}

// Listing implements packages.Protocol. The list of index files is signed, so it is passed on as it
// is.
func (p *Protocol) Listing(ctx context.Context, s packages.Source, t packages.Target, _ packages.Keep) (packages.Listing, error) {
	r, _ := parse(t.Path)
	text, list, err := p.release(ctx, s, t.Origin, r.base, r.suite)
	if err != nil {
		return packages.Listing{}, err
	}
	return packages.Listing{Text: text.Body, Type: "text/plain; charset=utf-8", Remaining: 1, Tolerated: list.unverified != ""}, nil
}

// File implements packages.Protocol.
func (p *Protocol) File(ctx context.Context, s packages.Source, t packages.Target) (packages.File, error) {
	r, _ := parse(t.Path)
	archive := t.Origin + r.base
	if r.pool {
		return p.deb(ctx, s, t, archive, r)
	}
	_, release, err := p.release(ctx, s, t.Origin, r.base, r.suite)
	if err != nil {
		return packages.File{}, err
	}
	name, ok := release.find(r.path)
	if !ok {
		return packages.File{}, packages.NoSuchFile(t.Name)
	}
	if isPackages(name) {
		p.use(ctx, s, archive, list{r.suite, name})
	}
	return packages.File{URL: archive + "/dists/" + r.suite + "/" + release.location(name), About: packages.Version{Digest: release.Files[name].digest()}, Tolerated: release.unverified != ""}, nil
}

func (f File) digest() packages.Digest {
	return packages.Digest{Algorithm: "sha256", Sum: string(f.SHA256[:])}
}

// find returns the name in the list for a requested path, which may be that of a digest.
func (r *Release) find(requested string) (string, bool) {
	if _, ok := r.Files[requested]; ok {
		return requested, true
	}
	dir, sum, ok := strings.Cut(requested, "/by-hash/SHA256/")
	if !ok {
		return "", false
	}
	for name, f := range r.Files {
		if path.Dir(name) == dir && hex.EncodeToString(f.SHA256[:]) == sum {
			return name, true
		}
	}
	return "", false
}

// location returns where an index file is fetched. Under its digest, it cannot change between two
// requests.
func (r *Release) location(name string) string {
	if !r.ByHash {
		return name
	}
	f := r.Files[name]
	return path.Dir(name) + "/by-hash/SHA256/" + hex.EncodeToString(f.SHA256[:])
}

// isPackages reports whether an index file lists packages in a form that can be read.
func isPackages(name string) bool {
	base := path.Base(name)
	return base == "Packages" || base == "Packages.gz" || base == "Packages.xz"
}

// usedKey is the key under which the lists of an archive are stored. It is not a URL.
func usedKey(archive string) string { return "apt " + archive }

// use remembers that a client reads a list of packages, so that the packages in it can be verified,
// also by the next process.
func (p *Protocol) use(ctx context.Context, s packages.Source, archive string, l list) {
	known := p.lists(s, archive)
	if slices.Contains(known, l) {
		return
	}
	known = append(slices.Clone(known), l)
	known = known[max(0, len(known)-maxLists):]
	p.mu.Lock()
	p.used[archive] = known
	p.mu.Unlock()
	if text, err := json.Marshal(known); err == nil {
		s.Store(ctx, usedKey(archive), text)
	}
}

func (p *Protocol) lists(s packages.Source, archive string) []list {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.used[archive]; known != nil {
		return known
	}
	var known []list
	if text, err := s.Stored(usedKey(archive)); err == nil && json.Unmarshal(text, &known) == nil && len(known) <= maxLists {
		p.used[archive] = known
	}
	return known
}

// deb returns what the lists say about a package's file.
func (p *Protocol) deb(ctx context.Context, s packages.Source, t packages.Target, archive string, r request) (packages.File, error) {
	var found *entry
	var since time.Time
	var releases []string
	var refused error
	tolerated := false // every list with the package is unverified
	for _, l := range p.lists(s, archive) {
		_, release, err := p.release(ctx, s, t.Origin, r.base, l.Suite)
		if errors.Is(err, packages.ErrAbsent) {
			continue
		}
		if _, ok := errors.AsType[*packages.Failure](err); ok {
			// All sandboxes have added to the lists. One that only another sandbox's policy permits,
			// or that has expired, must not keep this sandbox from the packages of others.
			refused = err
			continue
		}
		if err != nil {
			return packages.File{}, err
		}
		if _, ok := release.Files[l.Path]; !ok {
			continue
		}
		x, err := p.index(ctx, s, archive, l, release)
		if err != nil {
			return packages.File{}, err
		}
		e, ok := x.byPath[r.path]
		if !ok {
			continue
		}
		if found != nil && found.file != e.file {
			return packages.File{}, packages.Tampered("two lists of the archive have different digests of " + r.path)
		}
		found = &e
		if !slices.Contains(releases, release.Distribution) {
			releases = append(releases, release.Distribution)
		}
		// The archive does not say when it received a package. It had it when it made a list. The
		// time of a list for which nothing vouches counts only if there is no other.
		unverified := release.unverified != ""
		switch {
		case since.IsZero(), tolerated && !unverified:
			since, tolerated = release.Date, unverified
		case tolerated == unverified && release.Date.Before(since):
			since = release.Date
		}
	}
	if found == nil && refused != nil {
		return packages.File{}, refused
	}
	if found == nil || found.name != t.Name {
		return packages.File{}, &packages.Failure{Rule: packages.RuleRequest, Absent: true, Reason: "no list of packages that was read through the cache has " + r.path + "; run apt-get update"}
	}
	return packages.File{
		URL: t.Origin + t.Path, Version: found.version, Type: "application/vnd.debian.binary-package", Tolerated: tolerated,
		About: packages.Version{
			Digest: found.file.digest(), NotAfter: since, Origin: &packages.Origin{Name: found.source.Name, Version: found.source.Version, Releases: releases},
		},
	}, nil
}
