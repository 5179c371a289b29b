// Package gomod owns the cache's knowledge of the GOPROXY protocol: which request is for which
// module, when a version was made, and how the checksum database vouches for its files.
package gomod

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"github.com/crannog/crannog/internal/packages"
)

// Protocol is the GOPROXY protocol.
type Protocol struct {
	key string // of the checksum database

	mu     sync.Mutex
	latest []byte            // the newest signed tree head that was seen
	sums   map[string]string // verified sums by module and version
}

// New returns the protocol with Go's own checksum database.
func New() *Protocol { return NewWithKey(sumdbKey) }

// NewWithKey returns the protocol with the checksum database of a key.
func NewWithKey(key string) *Protocol { return &Protocol{key: key, sums: map[string]string{}} }

// Limits of what a proxy may send.
const (
	maxPath = 1 << 10
	// maxDated is the number of versions of a list whose times are requested.
	maxDated = 24
	// maxVersions limits a list.
	maxVersions = 20_000
)

// Parse implements packages.Protocol.
func (p *Protocol) Parse(origin, path string) packages.Target {
	t := packages.Target{Origin: origin, Path: path}
	plain, err := url.PathUnescape(path)
	if err != nil || len(plain) > maxPath {
		return t
	}
	rest := strings.TrimPrefix(plain, "/")
	if rest == "" || strings.HasPrefix(rest, "sumdb/") {
		t.Kind = packages.Service
		return t
	}
	if name, ok := strings.CutSuffix(rest, "/@latest"); ok {
		return p.target(t, packages.Document, name, "")
	}
	name, file, ok := strings.Cut(rest, "/@v/")
	if !ok {
		return t
	}
	if file == "list" {
		return p.target(t, packages.Document, name, "")
	}
	dot := strings.LastIndexByte(file, '.')
	if dot <= 0 || strings.Contains(file, "/") {
		return t
	}
	version, err := module.UnescapeVersion(file[:dot])
	canonical := err == nil && module.CanonicalVersion(version) == version
	switch ext := file[dot:]; {
	case ext == ".info" && err == nil:
		// A branch or a commit is a version that only the answer names.
		if !canonical {
			version = ""
		}
	case (ext == ".mod" || ext == ".zip") && canonical:
	default:
		return t
	}
	return p.target(t, packages.OfFile, name, version)
}

func (p *Protocol) target(t packages.Target, k packages.Kind, escaped, version string) packages.Target {
	name, err := module.UnescapePath(escaped)
	if err == nil {
		t.Kind, t.Name, t.Version = k, name, version
	}
	return t
}

// info is the answer about one version.
type info struct {
	Version string
	Time    time.Time
}

// infoOf reads what a proxy says about a version. The time is the commit's, as Go defines it.
func infoOf(text []byte) (info, error) {
	var i info
	if err := json.Unmarshal(text, &i); err != nil {
		return i, err
	}
	if module.CanonicalVersion(i.Version) != i.Version || i.Version == "" {
		return i, errors.New("it names no version")
	}
	return i, nil
}

func (p *Protocol) info(ctx context.Context, s packages.Source, url, version string) (info, packages.Text, error) {
	q := packages.Query{URL: url}
	if version != "" {
		q.Life = packages.Forever
	}
	text, err := s.Text(ctx, q)
	if err != nil {
		return info{}, text, err
	}
	i, err := infoOf(text.Body)
	if err == nil && version != "" && i.Version != version {
		err = errors.New("it is about another version")
	}
	if err != nil {
		return i, text, packages.Unreadable(err)
	}
	return i, text, nil
}

// versionURL returns the URL of a file about a version.
func versionURL(t packages.Target, version, ext string) (string, error) {
	path, err := module.EscapePath(t.Name)
	if err != nil {
		return "", packages.Unreadable(err)
	}
	escaped, err := module.EscapeVersion(version)
	if err != nil {
		return "", packages.Unreadable(err)
	}
	return t.Origin + "/" + path + "/@v/" + escaped + ext, nil
}

// File implements packages.Protocol.
func (p *Protocol) File(ctx context.Context, s packages.Source, t packages.Target) (packages.File, error) {
	ext := t.Path[strings.LastIndexByte(t.Path, '.'):]
	if ext == ".info" {
		at := t.Origin + t.Path
		if t.Version != "" {
			var err error
			if at, err = versionURL(t, t.Version, ext); err != nil {
				return packages.File{}, err
			}
		}
		i, text, err := p.info(ctx, s, at, t.Version)
		return packages.File{Version: i.Version, About: packages.Version{Published: i.Time}, Metadata: true, Text: text.Body, Type: "application/json"}, err
	}
	out := packages.File{Version: t.Version, Type: "text/plain; charset=utf-8", Check: checkMod, Metadata: ext == ".mod"}
	var err error
	if out.URL, err = versionURL(t, t.Version, ext); err != nil {
		return out, err
	}
	if s.Dated() {
		at, err := versionURL(t, t.Version, ".info")
		if err != nil {
			return out, err
		}
		i, _, err := p.info(ctx, s, at, t.Version)
		if err != nil {
			return out, err
		}
		out.About.Published = i.Time
	}
	lookup := t.Version + "/go.mod"
	out.Locked = packages.LockedFile{Part: "/go.mod", Sum: modSum}
	if ext == ".zip" {
		out.Type, lookup = "application/zip", t.Version
		out.Locked = packages.LockedFile{Sum: zipSum}
	}
	sum, err := p.sum(ctx, s, t, lookup)
	if unreachable, ok := errors.AsType[*unreachableError](err); ok {
		out.Unverified = unreachable.Error()
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Integrity = sum
	if ext == ".zip" {
		out.Check = zipCheck(sum)
	} else {
		out.Check = modCheck(sum)
	}
	return out, nil
}

// Listing implements packages.Protocol.
func (p *Protocol) Listing(ctx context.Context, s packages.Source, t packages.Target, keep packages.Keep) (packages.Listing, error) {
	if strings.HasSuffix(t.Path, "/@latest") {
		return p.newest(ctx, s, t, keep)
	}
	kept, err := p.list(ctx, s, t, keep)
	if err != nil {
		return packages.Listing{}, err
	}
	text := strings.Join(kept, "\n")
	if text != "" {
		text += "\n"
	}
	// An empty list is no refusal: modules without tagged versions have one.
	return packages.Listing{Text: []byte(text), Type: "text/plain; charset=utf-8", Remaining: max(1, len(kept))}, nil
}

// list returns the versions that keep accepts, the greatest first.
func (p *Protocol) list(ctx context.Context, s packages.Source, t packages.Target, keep packages.Keep) ([]string, error) {
	path, err := module.EscapePath(t.Name)
	if err != nil {
		return nil, packages.Unreadable(err)
	}
	text, err := s.Text(ctx, packages.Query{URL: t.Origin + "/" + path + "/@v/list"})
	if err != nil {
		return nil, err
	}
	all := strings.Fields(string(text.Body))
	if len(all) > maxVersions || slices.ContainsFunc(all, func(v string) bool { return module.CanonicalVersion(v) != v }) {
		return nil, packages.Unreadable(errors.New("it is no list of versions"))
	}
	// Without a release, go selects the newest pre-release, so releases come first.
	slices.SortFunc(all, func(a, b string) int {
		if ra, rb := semver.Prerelease(a) == "", semver.Prerelease(b) == ""; ra != rb {
			if ra {
				return -1
			}
			return 1
		}
		return semver.Compare(b, a)
	})
	var kept []string
	for n, v := range all {
		// The age of the others is judged when their files are requested. A request for each of
		// hundreds of versions would take too long.
		about := packages.Version{Published: time.Unix(0, 0)}
		if s.Dated() && n < maxDated {
			if about.Published, err = p.published(ctx, s, t, v); err != nil {
				return nil, err
			}
		}
		if keep(v, about) {
			kept = append(kept, v)
		}
	}
	return kept, nil
}

// published returns the time of a version, or no time if the proxy lists a version that it does not
// have.
func (p *Protocol) published(ctx context.Context, s packages.Source, t packages.Target, version string) (time.Time, error) {
	at, err := versionURL(t, version, ".info")
	if err != nil {
		return time.Time{}, err
	}
	i, _, err := p.info(ctx, s, at, version)
	if errors.Is(err, packages.ErrAbsent) {
		return time.Time{}, nil
	}
	return i.Time, err
}

// newest answers a request for the latest version. If the gate denies that version, it is the
// greatest version of the list that the gate accepts.
func (p *Protocol) newest(ctx context.Context, s packages.Source, t packages.Target, keep packages.Keep) (packages.Listing, error) {
	path, err := module.EscapePath(t.Name)
	if err != nil {
		return packages.Listing{}, packages.Unreadable(err)
	}
	i, text, err := p.info(ctx, s, t.Origin+"/"+path+"/@latest", "")
	if err != nil {
		return packages.Listing{}, err
	}
	out := packages.Listing{Text: text.Body, Type: "application/json", Remaining: 1}
	if keep(i.Version, packages.Version{Published: i.Time}) {
		return out, nil
	}
	kept, err := p.list(ctx, s, t, keep)
	if err != nil || len(kept) == 0 {
		out.Remaining = 0
		return out, err
	}
	at, err := versionURL(t, kept[0], ".info")
	if err != nil {
		return out, err
	}
	_, text, err = p.info(ctx, s, at, kept[0])
	out.Text = text.Body
	return out, err
}
