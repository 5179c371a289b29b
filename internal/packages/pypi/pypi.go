// Package pypi owns the cache's knowledge of Python's simple index: which request is for which
// project, and what the index says about its files.
package pypi

import (
	"bytes"
	"context"
	"html"
	"net/url"
	"strings"

	"github.com/crannog/crannog/internal/host/pattern"
	"github.com/crannog/crannog/internal/packages"
)

// Protocol is the protocol of the simple index.
type Protocol struct{}

// publicIndex is the index of the host that only serves PyPI's files.
const (
	publicFiles = "https://files.pythonhosted.org"
	publicIndex = "https://pypi.org"
)

const (
	maxName = 128
	// metadataSuffix is the ending of a file with the metadata of a wheel.
	metadataSuffix = ".metadata"
)

var validName = pattern.New(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// Parse implements packages.Protocol.
func (Protocol) Parse(origin, path string) packages.Target {
	t := packages.Target{Origin: origin, Path: path}
	plain, err := url.PathUnescape(path)
	if err != nil || strings.Contains(plain, "..") {
		return t
	}
	if plain == "/" || plain == "/simple/" || plain == "/simple" {
		t.Kind = packages.Service
		return t
	}
	if rest, ok := strings.CutPrefix(plain, "/simple/"); ok {
		name := strings.TrimSuffix(rest, "/")
		if len(name) <= maxName && validName.MatchString(name) {
			t.Kind, t.Name = packages.Document, packages.PythonName(name)
		}
		return t
	}
	if name, version, ok := fileName(plain[strings.LastIndexByte(plain, '/')+1:]); ok {
		t.Kind, t.Name, t.Version = packages.OfFile, name, version
	}
	return t
}

// fileName returns the project and the version of a file.
func fileName(file string) (name, version string, ok bool) {
	file = strings.TrimSuffix(file, metadataSuffix)
	if stem, wheel := strings.CutSuffix(file, ".whl"); wheel {
		parts := strings.Split(stem, "-")
		if len(parts) < 5 || len(parts) > 6 {
			return "", "", false
		}
		name, version = parts[0], parts[1]
	} else {
		for _, ending := range []string{".tar.gz", ".zip", ".tar.bz2", ".tgz"} {
			if stem, found := strings.CutSuffix(file, ending); found {
				if dash := strings.LastIndexByte(stem, '-'); dash > 0 {
					name, version = stem[:dash], stem[dash+1:]
				}
				break
			}
		}
	}
	if len(name) > maxName || !validName.MatchString(name) || version == "" {
		return "", "", false
	}
	return packages.PythonName(name), version, true
}

// load returns the files of a project.
func load(ctx context.Context, s packages.Source, t packages.Target) ([]file, error) {
	origin := t.Origin
	if origin == publicFiles {
		origin = publicIndex
	}
	at := origin + "/simple/" + t.Name + "/"
	text, err := s.Text(ctx, packages.Query{URL: at, Accept: jsonType + ", text/html;q=0.1"})
	if err != nil {
		return nil, err
	}
	files, err := packages.Parsed(ctx, s, at+" "+text.SHA256, func() ([]file, error) { return readIndex(t.Name, at, text.Type, text.Body) })
	if err != nil {
		return nil, packages.Unreadable(err)
	}
	return files, nil
}

// File implements packages.Protocol.
func (Protocol) File(ctx context.Context, s packages.Source, t packages.Target) (packages.File, error) {
	files, err := load(ctx, s, t)
	if err != nil {
		return packages.File{}, err
	}
	path, isMetadata := strings.CutSuffix(t.Path, metadataSuffix)
	for _, f := range files {
		if f.url != t.Origin+path {
			continue
		}
		out := packages.File{URL: f.url, Version: f.version, About: f.about, Type: "application/octet-stream"}
		if isMetadata {
			out.URL += metadataSuffix
			out.About.Digest = f.metadata
			out.Locked = packages.LockedFile{Describes: f.about.Digest}
		}
		return out, nil
	}
	return packages.File{}, packages.NoSuchFile(t.Name)
}

// Listing implements packages.Protocol. The document is always HTML, which each client reads.
func (Protocol) Listing(ctx context.Context, s packages.Source, t packages.Target, keep packages.Keep) (packages.Listing, error) {
	files, err := load(ctx, s, t)
	if err != nil {
		return packages.Listing{}, err
	}
	out := packages.Listing{Type: "text/html; charset=utf-8"}
	var text bytes.Buffer
	text.WriteString("<!DOCTYPE html>\n<html><head><meta name=\"pypi:repository-version\" content=\"1.0\"><title>" + html.EscapeString(t.Name) + "</title></head><body>\n")
	for _, f := range files {
		// The gate judges files, because a file can be added to an old version.
		if keep(f.version, f.about) {
			out.Remaining++
			f.write(&text)
		}
	}
	text.WriteString("</body></html>\n")
	out.Text = text.Bytes()
	return out, nil
}
