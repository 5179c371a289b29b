package npm

import (
	"context"
	"errors"
	"strings"

	"github.com/crannog/crannog/internal/packages"
)

// Protocol is npm's protocol.
type Protocol struct{}

// Parse implements packages.Protocol.
func (Protocol) Parse(origin, path string) packages.Target {
	kind, name := Parse(path)
	return packages.Target{Kind: kind, Origin: origin, Path: path, Name: name}
}

// query names a package's document. It is the whole one, because the abbreviated one does not say
// when versions were published.
func query(t packages.Target) packages.Query {
	return packages.Query{URL: t.Origin + DocumentPath(t.Name), Accept: "application/json"}
}

// load returns a package's document.
func load(ctx context.Context, s packages.Source, t packages.Target) (packages.Text, *packages.Index, error) {
	text, err := s.Text(ctx, query(t))
	if err != nil {
		return text, nil, err
	}
	index, err := packages.Parsed(ctx, s, t.Name+" "+text.SHA256, func() (*packages.Index, error) { return ReadIndex(t.Name, text.Body) })
	if err != nil {
		return text, nil, packages.Unreadable(err)
	}
	return text, index, nil
}

// errChanged is returned if a document was replaced while it was read.
var errChanged = errors.New("the document has changed")

// indexOf returns the index of a package's document. Documents have up to some tens of megabytes, and
// an install requests one file of each package: so the document is not read if its index is known.
func indexOf(ctx context.Context, s packages.Source, t packages.Target) (*packages.Index, error) {
	q := query(t)
	if sum, ok := s.Fresh(q); ok {
		index, err := packages.Parsed(ctx, s, t.Name+" "+sum, func() (*packages.Index, error) {
			text, err := s.Text(ctx, q)
			if err == nil && text.SHA256 != sum {
				err = errChanged
			}
			if err != nil {
				return nil, err
			}
			return ReadIndex(t.Name, text.Body)
		})
		if err == nil {
			return index, nil
		}
	}
	_, index, err := load(ctx, s, t)
	return index, err
}

// File implements packages.Protocol.
func (Protocol) File(ctx context.Context, s packages.Source, t packages.Target) (packages.File, error) {
	index, err := indexOf(ctx, s, t)
	if err != nil {
		return packages.File{}, err
	}
	id, ok := index.Files[t.Path]
	if !ok {
		// Some clients escape the slash of a scope.
		id, ok = index.Files[strings.ReplaceAll(strings.ReplaceAll(t.Path, "%2f", "/"), "%2F", "/")]
	}
	if !ok {
		return packages.File{}, packages.NoSuchFile(t.Name)
	}
	return packages.File{URL: t.Origin + t.Path, Version: id, About: index.Versions[id], Type: "application/octet-stream"}, nil
}

// Listing implements packages.Protocol.
func (Protocol) Listing(ctx context.Context, s packages.Source, t packages.Target, keep packages.Keep) (packages.Listing, error) {
	text, index, err := load(ctx, s, t)
	if err != nil {
		return packages.Listing{}, err
	}
	kept := map[string]bool{}
	for id, v := range index.Versions {
		if keep(id, v) {
			kept[id] = true
		}
	}
	out := packages.Listing{Text: text.Body, Type: "application/json", Remaining: len(kept)}
	if len(kept) == len(index.Versions) || len(kept) == 0 {
		return out, nil
	}
	out.Text, err = packages.Parsed(ctx, s, "", func() ([]byte, error) {
		return Filter(text.Body, index, func(v string) bool { return kept[v] })
	})
	if err != nil {
		return out, packages.Unreadable(err)
	}
	return out, nil
}
