package pullthrough

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/npm"
	"github.com/crannog/crannog/internal/packages/store"
)

// npm answers a request to a registry of npm's protocol.
func (c *Cache) npm(ctx context.Context, r Request) (Answer, error) {
	kind, name := npm.Parse(r.Path)
	fact := packages.Fact{Ecosystem: packages.NPM, Name: name}
	switch kind {
	case npm.Service:
		return Answer{Pass: true}, nil
	case npm.Unknown:
		return Answer{}, refuse(http.StatusForbidden, "package_request", RuleRequest, "this path belongs to no package, so what it serves cannot be verified", fact, nil)
	case npm.Document, npm.File:
	}
	if d := r.Gate(packages.Artifact{Ecosystem: packages.NPM, Name: name}, packages.Version{}, false); d != nil {
		return Answer{}, denied(d, fact)
	}
	// Request the whole document, because the abbreviated one does not say when versions were
	// published.
	doc, err := c.document(ctx, r, store.Entry{Key: r.Origin + npm.DocumentPath(name), Ecosystem: packages.NPM, Name: name}, "application/json")
	if err != nil {
		return Answer{}, err
	}
	if doc.status != 0 {
		return Answer{}, upstreamStatus(doc.status, fact)
	}
	index, err := c.index(ctx, string(packages.NPM)+name+doc.entry.SHA256, func() (*packages.Index, error) { return npm.ReadIndex(name, doc.text) })
	if err != nil {
		return Answer{}, refuse(http.StatusBadGateway, "package_document", RuleRequest, "the registry's document cannot be read: "+err.Error(), fact, err)
	}
	if kind == npm.File {
		return c.npmFile(ctx, r, index)
	}
	return c.npmDocument(ctx, r, doc, index)
}

// npmDocument returns a document without the versions that the gate denies.
func (c *Cache) npmDocument(ctx context.Context, r Request, doc document, index *packages.Index) (Answer, error) {
	fact := packages.Fact{Ecosystem: packages.NPM, Name: index.Name, Hash: "sha256:" + doc.entry.SHA256, Verdict: packages.Passed, Cached: doc.cached}
	text := doc.text
	withheld, denial := judgeAll(r.Gate, packages.NPM, index)
	var notice string
	if len(withheld) > 0 {
		fact.Verdict, fact.Withheld = packages.Filtered, newest(withheld)
		if len(withheld) == len(index.Versions) {
			return Answer{}, denied(denial, fact)
		}
		if err := c.acquireParser(ctx); err != nil {
			return Answer{}, err
		}
		filtered, err := npm.Filter(text, index, func(v string) bool { return withheld[v] == nil })
		c.releaseParser()
		if err != nil {
			return Answer{}, refuse(http.StatusBadGateway, "package_document", RuleRequest, "the registry's document cannot be read: "+err.Error(), fact, err)
		}
		text, notice = filtered, noticeOf(index, withheld)
	}
	return Answer{Status: http.StatusOK, Type: "application/json", Size: int64(len(text)), Body: body(text), Fact: fact, Notice: notice}, nil
}

func (c *Cache) npmFile(ctx context.Context, r Request, index *packages.Index) (Answer, error) {
	fact := packages.Fact{Ecosystem: packages.NPM, Name: index.Name}
	id, ok := index.Files[r.Path]
	if !ok {
		// Some clients escape the slash of a scope.
		id, ok = index.Files[strings.ReplaceAll(strings.ReplaceAll(r.Path, "%2f", "/"), "%2F", "/")]
	}
	if !ok {
		return Answer{}, refuse(http.StatusNotFound, "package_not_found", RuleRequest, "no version of "+index.Name+" has this file", fact, nil)
	}
	v := index.Versions[id]
	fact.Version, fact.Hash, fact.Scripts = id, v.Digest.String(), v.Scripts
	if d := r.Gate(packages.Artifact{Ecosystem: packages.NPM, Name: index.Name, Version: id}, v, true); d != nil {
		return Answer{}, denied(d, fact)
	}
	f, entry, cached, err := c.file(ctx, r, store.Entry{Key: r.Origin + r.Path, Ecosystem: packages.NPM, Name: index.Name, Version: id}, v.Digest)
	if err != nil {
		return Answer{}, err
	}
	fact.Verdict, fact.Cached = packages.Passed, cached
	return Answer{Status: http.StatusOK, Type: "application/octet-stream", Size: entry.Size, Body: f, Fact: fact}, nil
}

// judgeAll returns the denied versions of a package, and any one of the denials.
func judgeAll(gate packages.Gate, e packages.Ecosystem, index *packages.Index) (withheld map[string]*packages.Denial, denial *packages.Denial) {
	withheld = map[string]*packages.Denial{}
	for id, v := range index.Versions {
		if d := gate(packages.Artifact{Ecosystem: e, Name: index.Name, Version: id}, v, true); d != nil {
			withheld[id], denial = d, d
		}
	}
	return withheld, denial
}

// newest returns the greatest versions, as many as an audit entry may name, in descending order.
func newest(withheld map[string]*packages.Denial) []string {
	list := make([]string, 0, len(withheld))
	for id := range withheld {
		list = append(list, id)
	}
	slices.Sort(list)
	slices.Reverse(list)
	return list[:min(len(list), packages.MaxWithheld)]
}

// noticeOf names a few of the removed versions with their reasons.
func noticeOf(index *packages.Index, withheld map[string]*packages.Denial) string {
	const maxNamed = 3
	var parts []string
	for _, id := range newest(withheld)[:min(len(withheld), maxNamed)] {
		parts = append(parts, id+": "+withheld[id].Reason)
	}
	text := "crannog withholds versions of " + index.Name + ": " + strings.Join(parts, "; ")
	if len(withheld) > maxNamed {
		text += "; and others"
	}
	return text
}
