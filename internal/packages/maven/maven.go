// Package maven owns the cache's knowledge of Maven repositories: which request is for which
// artifact, and the checksums beside the files.
package maven

import (
	"context"
	"encoding/hex"
	"errors"
	"net/url"
	"path"
	"strings"

	"github.com/crannog/crannog/internal/packages"
)

// Protocol is the layout of Maven repositories.
type Protocol struct{}

const (
	maxPath  = 1 << 10
	metadata = "maven-metadata.xml"
)

// checksums are the endings of files with a checksum, the strongest first.
var checksums = []string{"sha512", "sha256", "sha1"}

// request is a parsed path.
type request struct {
	file     string // path without the ending of a checksum
	checksum string // algorithm, if the request is for a checksum
	artifact string // GROUP:ARTIFACT
	version  string // empty for a list of versions
}

func parse(escaped string) (request, bool) {
	plain, err := url.PathUnescape(escaped)
	// A snapshot changes under one version, so no digest vouches for it.
	if err != nil || len(plain) > maxPath || plain != path.Clean(plain) || strings.Contains(plain, "-SNAPSHOT") || strings.ContainsAny(plain, " :?#%\\") {
		return request{}, false
	}
	r := request{file: plain}
	for _, c := range checksums {
		if file, ok := strings.CutSuffix(plain, "."+c); ok {
			r.file, r.checksum = file, c
		}
	}
	parts := strings.Split(strings.TrimPrefix(withoutBase(r.file), "/"), "/")
	n := len(parts)
	if n >= 3 && parts[n-1] == metadata {
		r.artifact = strings.Join(parts[:n-2], ".") + ":" + parts[n-2]
		return r, true
	}
	if n < 4 || !strings.HasPrefix(parts[n-1], parts[n-3]+"-"+parts[n-2]) {
		return request{}, false
	}
	r.artifact, r.version = strings.Join(parts[:n-3], ".")+":"+parts[n-3], parts[n-2]
	return r, true
}

// withoutBase removes the directory of the repository from a path.
func withoutBase(file string) string {
	if rest, ok := strings.CutPrefix(file, "/maven2"); ok {
		return rest
	}
	if rest, ok := strings.CutPrefix(file, "/repository/"); ok {
		_, rest, _ = strings.Cut(rest, "/")
		return "/" + rest
	}
	return file
}

// Parse implements packages.Protocol.
func (Protocol) Parse(origin, escaped string) packages.Target {
	t := packages.Target{Origin: origin, Path: escaped}
	r, ok := parse(escaped)
	switch {
	case !ok:
		if escaped == "/" {
			t.Kind = packages.Service
		}
	case r.version == "":
		t.Kind, t.Name = packages.Document, r.artifact
	default:
		t.Kind, t.Name, t.Version = packages.OfFile, r.artifact, r.version
	}
	return t
}

// File implements packages.Protocol.
func (p Protocol) File(ctx context.Context, s packages.Source, t packages.Target) (packages.File, error) {
	r, _ := parse(t.Path)
	at := t.Origin + r.file
	if r.checksum != "" {
		digest, about, err := p.checksum(ctx, s, at, r.checksum)
		if err != nil {
			return packages.File{}, err
		}
		return packages.File{Version: r.version, About: about, Type: "text/plain", Metadata: isModel(r.file), Text: []byte(hex.EncodeToString([]byte(digest.Sum)))}, nil
	}
	about, err := p.about(ctx, s, at)
	return packages.File{URL: at, Version: r.version, About: about, Metadata: isModel(r.file)}, err
}

// isModel reports whether a file describes an artifact. Clients read the descriptions of all
// versions that something depends on before they choose one.
func isModel(file string) bool {
	return strings.HasSuffix(file, ".pom") || strings.HasSuffix(file, ".module")
}

// about returns the strongest checksum of a file, and the time that the repository states for it.
// Without a checksum, the digest is zero.
func (p Protocol) about(ctx context.Context, s packages.Source, file string) (packages.Version, error) {
	for _, algorithm := range checksums {
		_, about, err := p.checksum(ctx, s, file, algorithm)
		if !errors.Is(err, packages.ErrAbsent) {
			return about, err
		}
	}
	return packages.Version{}, nil
}

func (Protocol) checksum(ctx context.Context, s packages.Source, file, algorithm string) (packages.Digest, packages.Version, error) {
	at := file + "." + algorithm
	// Files of a released version do not change, so a checksum that is absent stays absent.
	absent := "absent " + at
	if _, err := s.Stored(absent); err == nil {
		return packages.Digest{}, packages.Version{}, &packages.Failure{Rule: packages.RuleRequest, Reason: "the repository has no such checksum", Absent: true, Cause: packages.ErrAbsent}
	}
	text, err := s.Text(ctx, packages.Query{URL: at, Life: packages.Forever})
	if err != nil {
		if errors.Is(err, packages.ErrAbsent) {
			s.Store(ctx, absent, []byte("absent"))
		}
		return packages.Digest{}, packages.Version{}, err
	}
	// Some repositories write the name of the file after the checksum.
	word, _, _ := strings.Cut(strings.TrimSpace(string(text.Body)), " ")
	digest, ok := packages.HexDigest(algorithm, word)
	if !ok {
		return digest, packages.Version{}, packages.Unreadable(errors.New("it is no checksum"))
	}
	return digest, packages.Version{Digest: digest, Published: text.Modified}, nil
}
