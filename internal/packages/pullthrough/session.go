package pullthrough

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/store"
)

// session is one request. It implements packages.Source.
type session struct {
	cache    *Cache
	request  Request
	fact     packages.Fact
	document string // SHA-256 of the text that was read last
	fetched  bool   // something was fetched
	screen   *screen
}

// Text implements packages.Source.
func (s *session) Text(ctx context.Context, q packages.Query) (packages.Text, error) {
	e := store.Entry{Key: q.URL, Ecosystem: s.request.Ecosystem, Name: s.fact.Name}
	var doc document
	var err error
	if q.Bypass {
		if s.request.Offline {
			return packages.Text{}, offline(s.fact)
		}
		doc, err = s.cache.receiveDocument(ctx, s.request, e, q)
	} else {
		doc, err = s.cache.document(ctx, s.request, e, q)
	}
	if err != nil {
		return packages.Text{}, err
	}
	s.fetched = s.fetched || !doc.cached
	if doc.status != 0 {
		return packages.Text{}, upstreamStatus(doc.status, s.fact)
	}
	s.document = doc.entry.SHA256
	return doc.published(), nil
}

// Stored implements packages.Source.
func (s *session) Stored(key string) ([]byte, error) {
	_, text, err := s.cache.stored(key)
	if fault.KindOf(err) == fault.NotFound {
		err = packages.ErrAbsent
	}
	return text, err
}

// Store implements packages.Source.
func (s *session) Store(ctx context.Context, key string, text []byte) {
	sum := sha256.Sum256(text)
	s.cache.storeDocument(ctx, store.Entry{
		Key: key, Ecosystem: s.request.Ecosystem, Name: s.fact.Name, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(text)), Fetched: s.cache.now().UTC(),
	}, text)
}

// Parsed implements packages.Source.
func (s *session) Parsed(ctx context.Context, key string, parse func() (any, error)) (any, error) {
	return s.cache.parsed(ctx, s.request.Ecosystem, key, parse)
}

// Dated implements packages.Source.
func (s *session) Dated() bool { return s.request.Dated }

// Unverified implements packages.Source.
func (s *session) Unverified(name string) bool {
	return s.request.Unverified != nil && s.request.Unverified(packages.Artifact{Ecosystem: s.request.Ecosystem, Name: name})
}

// content returns the content of a verified file.
func (s *session) content(ctx context.Context, e store.Entry, f packages.File) (*os.File, store.Entry, error) {
	want := f.Integrity
	if f.Check == nil {
		want = f.About.Digest.String()
		if f.About.Digest.Hash() == nil {
			return nil, e, refuse(http.StatusForbidden, "package_integrity", packages.RuleIntegrity, "the registry has no digest of this file", s.fact, nil)
		}
	}
	content, entry, cached, err := s.cache.file(ctx, s.request, e, want, f)
	s.fetched = s.fetched || !cached
	if err != nil {
		return nil, e, err
	}
	return content, entry, nil
}
