package apt

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/ulikunitz/xz"

	"github.com/crannog/crannog/internal/packages"
)

// Limits of a list of packages.
const (
	maxUnpacked = 512 << 20
	maxEntries  = 300_000
	maxLine     = 1 << 20
)

// entry is a package in a list.
type entry struct {
	name, version string
	file          File
	source        packages.Origin // without releases
}

// index is a list of packages.
type index struct{ byPath map[string]entry }

// index returns the packages of a list.
func (p *Protocol) index(ctx context.Context, s packages.Source, archive string, l list, r *Release) (*index, error) {
	f := r.Files[l.Path]
	key := string(f.SHA256[:])
	p.mu.Lock()
	known := p.indexes[key]
	p.mu.Unlock()
	if known != nil {
		return known, nil
	}
	text, err := s.Text(ctx, packages.Query{URL: archive + "/dists/" + l.Suite + "/" + r.location(l.Path), Life: packages.Forever, Digest: f.digest()})
	if err != nil {
		return nil, err
	}
	x, err := packages.Parsed(ctx, s, "", func() (*index, error) { return readIndex(path.Ext(l.Path), text.Body) })
	if err != nil {
		return nil, packages.Unreadable(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for other := range p.indexes {
		if len(p.indexes) < maxIndexes {
			break
		}
		delete(p.indexes, other)
	}
	p.indexes[key] = x
	return x, nil
}

// readIndex reads a list of packages, which is compressed according to its ending.
func readIndex(ending string, text []byte) (*index, error) {
	var r io.Reader = bytes.NewReader(text)
	var err error
	switch ending {
	case ".gz":
		r, err = gzip.NewReader(r)
	case ".xz":
		r, err = xz.NewReader(bufio.NewReader(r))
	}
	if err != nil {
		return nil, err
	}
	limited := &io.LimitedReader{R: r, N: maxUnpacked}
	scan := bufio.NewScanner(limited)
	scan.Buffer(make([]byte, 0, 64<<10), maxLine)
	out := &index{byPath: map[string]entry{}}
	fields := map[string]string{}
	add := func() error {
		defer clear(fields)
		if len(fields) == 0 {
			return nil
		}
		f, err := ParseFile(fields["Size"], fields["SHA256"])
		if err != nil || fields["Package"] == "" || fields["Version"] == "" || len(out.byPath) >= maxEntries {
			return errors.New("it has an invalid entry")
		}
		at := strings.TrimPrefix(fields["Filename"], "./")
		if other, twice := out.byPath[at]; twice && other.file != f {
			return errors.New("it has two digests of one file")
		}
		name, version := strings.Clone(fields["Package"]), strings.Clone(fields["Version"])
		out.byPath[at] = entry{name, version, f, sourceOf(fields["Source"], name, version)}
		return nil
	}
	for scan.Scan() {
		if len(scan.Bytes()) == 0 {
			if err := add(); err != nil {
				return nil, err
			}
			continue
		}
		key, value, ok := bytes.Cut(scan.Bytes(), []byte(": "))
		if !ok {
			continue
		}
		switch name := string(key); name {
		case "Package", "Version", "Filename", "Size", "SHA256", "Source":
			fields[name] = string(value)
		}
	}
	if limited.N <= 0 {
		return nil, errors.New("it is too large")
	}
	if err := scan.Err(); err != nil {
		return nil, err
	}
	return out, add()
}

// sourceOf returns the source package of an entry. The field Source is absent if it has the name of
// the package, and has a version only if that is another one: "openssl (1.1.1-1)".
func sourceOf(field, name, version string) packages.Origin {
	source, rest, _ := strings.Cut(field, " ")
	if source != "" {
		name = strings.Clone(source)
	}
	if other := strings.TrimSuffix(strings.TrimPrefix(rest, "("), ")"); other != "" {
		version = strings.Clone(other)
	}
	return packages.Origin{Name: name, Version: version}
}
