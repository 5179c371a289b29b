package pullthrough

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/store"
)

// document is what a registry says about a package.
type document struct {
	entry  store.Entry
	text   []byte
	cached bool
	// status is set if the registry has no such document.
	status int
}

// document returns a document that is fresh enough. If none is stored, it fetches the document. e
// has the document's key, ecosystem and name.
func (c *Cache) document(ctx context.Context, r Request, e store.Entry, accept string) (document, error) {
	for {
		found, text, err := c.stored(e.Key)
		if err != nil && fault.KindOf(err) != fault.NotFound {
			return document{}, err
		}
		if err == nil && (r.Offline || c.now().Sub(found.Fetched) < DocumentLife) {
			return document{entry: found, text: text, cached: true}, nil
		}
		if r.Offline {
			return document{}, offline(packages.Fact{Ecosystem: e.Ecosystem, Name: e.Name})
		}
		var got document
		fetched, err := c.fetchOnce(ctx, e.Key, func() (err error) {
			got, err = c.fetchDocument(ctx, r, e, accept)
			return err
		})
		if fetched || err != nil {
			return got, err
		}
	}
}

// stored returns the entry and the content of a stored document.
func (c *Cache) stored(key string) (store.Entry, []byte, error) {
	e, f, err := c.storage.Find(key)
	if err != nil {
		return e, nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	return e, text, err
}

func (c *Cache) fetchDocument(ctx context.Context, r Request, e store.Entry, accept string) (document, error) {
	fact := packages.Fact{Ecosystem: e.Ecosystem, Name: e.Name}
	resp, err := r.Upstream.Get(ctx, e.Key, accept)
	if err != nil {
		return document{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone {
		return document{entry: e, status: resp.StatusCode}, nil
	}
	if resp.StatusCode != http.StatusOK {
		return document{}, upstreamStatus(resp.StatusCode, fact)
	}
	body := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(resp.Body); err != nil {
			return document{}, broken(err, fact)
		}
	}
	// The limit counts what was unpacked, so a small answer cannot become a large document.
	text, err := io.ReadAll(io.LimitReader(body, maxDocument+1))
	switch {
	case err != nil:
		return document{}, broken(err, fact)
	case len(text) > maxDocument:
		return document{}, refuse(http.StatusBadGateway, "package_too_large", RuleRequest, "the registry's document is larger than the cache accepts", fact, nil)
	}
	sum := sha256.Sum256(text)
	e.SHA256, e.Size, e.Fetched = hex.EncodeToString(sum[:]), int64(len(text)), c.now().UTC()
	e.Type = resp.Header.Get("Content-Type")
	c.storeDocument(ctx, e, text)
	return document{entry: e, text: text}, nil
}

// storeDocument stores a document. An error is ignored, because the next request then fetches the
// document again.
func (c *Cache) storeDocument(ctx context.Context, e store.Entry, text []byte) {
	f, err := c.storage.Create()
	if err != nil {
		return
	}
	defer f.Close()
	if _, err := f.Write(text); err == nil {
		_ = c.storage.Keep(ctx, e, f)
	}
}

// file returns the content of a file that was verified against the registry's digest. e has the
// file's key, ecosystem, name and version.
func (c *Cache) file(ctx context.Context, r Request, e store.Entry, digest packages.Digest) (content *os.File, entry store.Entry, cached bool, err error) {
	fact := packages.Fact{Ecosystem: e.Ecosystem, Name: e.Name, Version: e.Version, Hash: digest.String()}
	if digest.Hash() == nil {
		return nil, e, false, refuse(http.StatusForbidden, "package_integrity", RuleIntegrity, "the registry has no digest of this file", fact, nil)
	}
	for {
		found, f, err := c.storage.Find(e.Key)
		switch {
		case err == nil && found.Integrity == digest.String():
			return f, found, true, nil
		case err == nil:
			f.Close() // The registry replaced the file, so it is fetched and verified again.
		case fault.KindOf(err) != fault.NotFound:
			return nil, e, false, err
		}
		if r.Offline {
			return nil, e, false, offline(fact)
		}
		fetched, err := c.fetchOnce(ctx, e.Key, func() (err error) {
			content, entry, err = c.fetchFile(ctx, r, e, digest)
			return err
		})
		if fetched || err != nil {
			return content, entry, false, err
		}
	}
}

func (c *Cache) fetchFile(ctx context.Context, r Request, e store.Entry, digest packages.Digest) (*os.File, store.Entry, error) {
	fact := packages.Fact{Ecosystem: e.Ecosystem, Name: e.Name, Version: e.Version, Hash: digest.String()}
	resp, err := r.Upstream.Get(ctx, e.Key, "")
	if err != nil {
		return nil, e, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, e, upstreamStatus(resp.StatusCode, fact)
	}
	f, err := c.storage.Create()
	if err != nil {
		return nil, e, err
	}
	sum, published := sha256.New(), digest.Hash()
	n, err := io.Copy(io.MultiWriter(f, sum, published), io.LimitReader(resp.Body, store.MaxBlob+1))
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if stop := verify(n, published, digest, err, fact); stop != nil {
		f.Close()
		return nil, e, stop
	}
	e.SHA256, e.Size, e.Fetched = hex.EncodeToString(sum.Sum(nil)), n, c.now().UTC()
	e.Integrity, e.Type = digest.String(), resp.Header.Get("Content-Type")
	if err := c.storage.Keep(ctx, e, f); err == nil {
		_, err = f.Seek(0, io.SeekStart) // f shares its position with the process that stores it
		if err != nil {
			f.Close()
			return nil, e, err
		}
	}
	return f, e, nil
}

// verify returns an error unless a file of n bytes was received completely and has the published
// digest.
func verify(n int64, computed hash.Hash, digest packages.Digest, err error, fact packages.Fact) error {
	switch {
	case err != nil:
		return broken(err, fact)
	case n > store.MaxBlob:
		return refuse(http.StatusBadGateway, "package_too_large", RuleRequest, "the file is larger than the cache accepts", fact, nil)
	case !digest.Matches(computed.Sum(nil)):
		got := packages.Digest{Algorithm: digest.Algorithm, Sum: string(computed.Sum(nil))}
		return refuse(http.StatusBadGateway, "package_integrity", RuleIntegrity,
			fmt.Sprintf("the file is not what the registry's own data says: its digest is %s instead of %s", got, digest), fact, nil)
	}
	return nil
}

func upstreamStatus(status int, f packages.Fact) error {
	text := fmt.Sprintf("the registry answered %d", status)
	if status == http.StatusNotFound || status == http.StatusGone {
		return refuse(http.StatusNotFound, "package_not_found", RuleRequest, text, f, nil)
	}
	return refuse(http.StatusBadGateway, "upstream_failed", RuleRequest, text, f, nil)
}

func broken(err error, f packages.Fact) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return refuse(http.StatusBadGateway, "upstream_failed", RuleRequest, "the registry's answer is incomplete", f, err)
}

// body returns a text as the body of an answer.
func body(text []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(text)) }
