// Package crates owns the cache's knowledge of Cargo's sparse index: which request is for which
// crate, and what the index says about its versions.
package crates

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/packages"
)

// Protocol is the protocol of the sparse index and of downloads.
type Protocol struct{}

const (
	// maxName is the limit of crates.io for a name.
	maxName = 64
	// maxLine limits what the index says about one version.
	maxLine = 1 << 20
)

// publicIndex is the index for the hosts of crates.io that only serve files.
const publicIndex = "https://index.crates.io"

// Parse implements packages.Protocol.
func (Protocol) Parse(origin, path string) packages.Target {
	t := packages.Target{Origin: origin, Path: path}
	plain, err := url.PathUnescape(path)
	if err != nil || strings.Contains(plain, "..") {
		return t
	}
	parts := strings.Split(strings.TrimPrefix(plain, "/"), "/")
	if name, version, ok := download(parts); ok {
		t.Kind, t.Name, t.Version = packages.OfFile, name, version
		return t
	}
	last := parts[len(parts)-1]
	switch {
	case plain == "/" || plain == "/config.json":
		t.Kind = packages.Service
	case validName(last) && strings.EqualFold(plain, indexPath(last)):
		t.Kind, t.Name = packages.Document, last
	case parts[0] == "api" && origin == "https://crates.io":
		t.Kind = packages.Service // such as a search
	}
	return t
}

// download returns the crate of the path of a file: NAME/NAME-VERSION.crate or
// NAME/VERSION/download.
func download(parts []string) (name, version string, ok bool) {
	n := len(parts)
	switch {
	case n >= 3 && parts[n-1] == "download":
		name, version = parts[n-3], parts[n-2]
	case n >= 2 && strings.HasSuffix(parts[n-1], ".crate"):
		name = parts[n-2]
		version, ok = strings.CutPrefix(strings.TrimSuffix(parts[n-1], ".crate"), name+"-")
		if !ok {
			return "", "", false
		}
	}
	return name, version, validName(name) && version != ""
}

func validName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// indexPath returns the path of a crate in the index.
func indexPath(name string) string {
	name = strings.ToLower(name)
	switch len(name) {
	case 1, 2:
		return "/" + string(rune('0'+len(name))) + "/" + name
	case 3:
		return "/3/" + name[:1] + "/" + name
	}
	return "/" + name[:2] + "/" + name[2:4] + "/" + name
}

// line is a version in the index.
type line struct {
	text    []byte
	version string
	about   packages.Version
}

// readIndex reads the versions of a crate. A line about another crate is an error, because its
// digest could otherwise be used for this one.
func readIndex(name string, text []byte) ([]line, error) {
	var out []line
	scan := bufio.NewScanner(bytes.NewReader(text))
	scan.Buffer(nil, maxLine)
	for scan.Scan() {
		if len(bytes.TrimSpace(scan.Bytes())) == 0 {
			continue
		}
		var v struct {
			Name    string `json:"name"`
			Version string `json:"vers"`
			SHA256  string `json:"cksum"`
			Time    string `json:"pubtime"`
		}
		if err := json.Unmarshal(scan.Bytes(), &v); err != nil {
			return nil, err
		}
		if !strings.EqualFold(v.Name, name) || v.Version == "" {
			return nil, errors.New("it is about another crate")
		}
		l := line{text: bytes.Clone(scan.Bytes()), version: v.Version}
		l.about.Digest, _ = packages.HexDigest("sha256", v.SHA256)
		if at, err := time.Parse(time.RFC3339, v.Time); err == nil {
			l.about.Published = at
		}
		out = append(out, l)
	}
	return out, scan.Err()
}

func load(ctx context.Context, s packages.Source, t packages.Target) ([]line, error) {
	origin := t.Origin
	if origin == "https://static.crates.io" || origin == "https://crates.io" {
		origin = publicIndex
	}
	text, err := s.Text(ctx, packages.Query{URL: origin + indexPath(t.Name)})
	if err != nil {
		return nil, err
	}
	lines, err := packages.Parsed(ctx, s, t.Name+" "+text.SHA256, func() ([]line, error) { return readIndex(t.Name, text.Body) })
	if err != nil {
		return nil, packages.Unreadable(err)
	}
	return lines, nil
}

// File implements packages.Protocol.
func (Protocol) File(ctx context.Context, s packages.Source, t packages.Target) (packages.File, error) {
	lines, err := load(ctx, s, t)
	if err != nil {
		return packages.File{}, err
	}
	for _, l := range lines {
		if l.version == t.Version {
			return packages.File{URL: t.Origin + t.Path, Version: l.version, About: l.about, Type: "application/gzip"}, nil
		}
	}
	return packages.File{}, packages.NoSuchFile(t.Name)
}

// Listing implements packages.Protocol.
func (Protocol) Listing(ctx context.Context, s packages.Source, t packages.Target, keep packages.Keep) (packages.Listing, error) {
	lines, err := load(ctx, s, t)
	if err != nil {
		return packages.Listing{}, err
	}
	out := packages.Listing{Type: "text/plain; charset=utf-8"}
	var text bytes.Buffer
	for _, l := range lines {
		if keep(l.version, l.about) {
			out.Remaining++
			text.Write(l.text)
			text.WriteByte('\n')
		}
	}
	out.Text = text.Bytes()
	return out, nil
}
