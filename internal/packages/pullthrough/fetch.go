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
	"time"

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

// published returns the document as protocols see it.
func (d document) published() packages.Text {
	return packages.Text{Body: d.text, SHA256: d.entry.SHA256, Type: d.entry.Type, Modified: d.entry.Modified}
}

// check returns the error of a query's own verification.
func (d document) check(q packages.Query) error {
	if q.Check == nil {
		return nil
	}
	return q.Check(d.published())
}

// document returns a document that is fresh enough. If none is stored, it fetches the document. e
// has the document's key, ecosystem and name.
func (c *Cache) document(ctx context.Context, r Request, e store.Entry, q packages.Query) (document, error) {
	life := lifeOf(q)
	for {
		found, text, err := c.stored(e.Key)
		if err != nil && fault.KindOf(err) != fault.NotFound {
			return document{}, err
		}
		if err == nil && (r.Offline || c.now().Sub(found.Fetched) < life) && isText(found, q) {
			got := document{entry: found, text: text, cached: true}
			// What another policy tolerated, or what has expired, is fetched again.
			if err := got.check(q); err == nil || r.Offline {
				return got, err
			}
		}
		if r.Offline {
			return document{}, offline(packages.Fact{Ecosystem: e.Ecosystem, Name: e.Name})
		}
		var got document
		fetched, err := c.fetchOnce(ctx, e.Key, func() (err error) {
			if found.Key != "" && c.unchanged(ctx, r, found, q) {
				found.Fetched = c.now().UTC()
				got = document{entry: found, text: text, cached: true}
				c.storeDocument(ctx, found, text)
				return nil
			}
			got, err = c.receiveDocument(ctx, r, e, q)
			if err == nil && got.status == 0 {
				c.storeDocument(ctx, got.entry, got.text)
			}
			return err
		})
		if fetched || err != nil {
			return got, err
		}
	}
}

// lifeOf returns how long a stored document may be used.
func lifeOf(q packages.Query) time.Duration {
	if q.Life == 0 {
		return DocumentLife
	}
	return q.Life
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

// isText reports whether an entry has the digest of a query.
func isText(e store.Entry, q packages.Query) bool {
	return q.Digest.Algorithm == "" || q.Digest.String() == e.Integrity
}

// receiveDocument fetches a document.
func (c *Cache) receiveDocument(ctx context.Context, r Request, e store.Entry, q packages.Query) (document, error) {
	fact := packages.Fact{Ecosystem: e.Ecosystem, Name: e.Name}
	accept := q.Accept
	if accept == "" && q.Digest.Algorithm == "" {
		accept = "*/*"
	}
	resp, err := c.send(ctx, r, e, Fetch{Method: http.MethodGet, URL: e.Key, Accept: accept})
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
		return document{}, refuse(http.StatusBadGateway, "package_too_large", packages.RuleRequest, "the registry's document is larger than the cache accepts", fact, nil)
	}
	sum := sha256.Sum256(text)
	e.SHA256, e.Size, e.Fetched = hex.EncodeToString(sum[:]), int64(len(text)), c.now().UTC()
	if q.Digest.Algorithm != "" {
		published := q.Digest.Hash()
		published.Write(text)
		if stop := verify(published, q.Digest, nil, fact); stop != nil {
			return document{}, stop
		}
		e.Integrity = q.Digest.String()
	}
	if err := stated(resp, e.SHA256, fact); err != nil {
		return document{}, err
	}
	e.Type = resp.Header.Get("Content-Type")
	if at, err := http.ParseTime(resp.Header.Get("Last-Modified")); err == nil {
		e.Modified = at
	}
	got := document{entry: e, text: text}
	return got, got.check(q)
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

// file returns the content of a file that was verified against the registry's digest, which want
// identifies. e has the file's key, ecosystem, name and version.
func (c *Cache) file(ctx context.Context, r Request, e store.Entry, want string, about packages.File) (content *os.File, entry store.Entry, cached bool, err error) {
	fact := packages.Fact{Ecosystem: e.Ecosystem, Name: e.Name, Version: e.Version, Hash: want}
	for {
		found, f, err := c.storage.Find(e.Key)
		switch {
		case err == nil && found.Integrity == want:
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
			content, entry, err = c.fetchFile(ctx, r, e, want, about)
			return err
		})
		if fetched || err != nil {
			return content, entry, false, err
		}
	}
}

func (c *Cache) fetchFile(ctx context.Context, r Request, e store.Entry, want string, about packages.File) (*os.File, store.Entry, error) {
	fact := packages.Fact{Ecosystem: e.Ecosystem, Name: e.Name, Version: e.Version, Hash: want}
	resp, err := c.send(ctx, r, e, Fetch{Method: http.MethodGet, URL: e.Key})
	if err != nil {
		return nil, e, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, e, upstreamStatus(resp.StatusCode, fact)
	}
	limit, release, err := c.limit(ctx, e.Ecosystem, resp.ContentLength)
	if err != nil {
		return nil, e, err
	}
	defer release()
	if resp.ContentLength > limit {
		return nil, e, c.tooLarge(fact, limit)
	}
	f, err := c.storage.Create()
	if err != nil {
		return nil, e, err
	}
	sum, published := sha256.New(), about.About.Digest.Hash()
	writers := []io.Writer{f, sum}
	if about.Check == nil {
		writers = append(writers, published)
	}
	n, err := io.Copy(io.MultiWriter(writers...), io.LimitReader(resp.Body, limit+1))
	if err == nil && n > limit {
		err = c.tooLarge(fact, limit)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if about.Check == nil {
		err = verify(published, about.About.Digest, err, fact)
	} else if err = received(err, fact); err == nil {
		err = c.check(ctx, f, n, about.Check)
	}
	if err != nil {
		f.Close()
		return nil, e, err
	}
	e.SHA256, e.Size, e.Fetched = hex.EncodeToString(sum.Sum(nil)), n, c.now().UTC()
	e.Integrity, e.Type = want, resp.Header.Get("Content-Type")
	if err := c.storage.Keep(ctx, e, f); err == nil {
		_, err = f.Seek(0, io.SeekStart) // f shares its position with the process that stores it
		if err != nil {
			f.Close()
			return nil, e, err
		}
	}
	return f, e, nil
}

// check runs the verification of a protocol, as one of few at the same time.
func (c *Cache) check(ctx context.Context, f *os.File, n int64, check func(io.ReaderAt, int64) error) error {
	if err := c.acquireParser(ctx); err != nil {
		return err
	}
	defer c.releaseParser()
	return check(f, n)
}

// received returns the error for a file that was not received completely.
func received(err error, fact packages.Fact) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Refusal](err); ok {
		return err
	}
	return broken(err, fact)
}

// verify returns an error unless a file was received completely and has the published digest.
func verify(computed hash.Hash, digest packages.Digest, err error, fact packages.Fact) error {
	if err := received(err, fact); err != nil {
		return err
	}
	if !digest.Matches(computed.Sum(nil)) {
		got := packages.Digest{Algorithm: digest.Algorithm, Sum: string(computed.Sum(nil))}
		return refuse(http.StatusBadGateway, "package_integrity", packages.RuleIntegrity,
			fmt.Sprintf("the file is not what the registry's own data says: its digest is %s instead of %s", got, digest), fact, nil)
	}
	return nil
}

func upstreamStatus(status int, f packages.Fact) error {
	text := fmt.Sprintf("the registry answered %d", status)
	if status == http.StatusNotFound || status == http.StatusGone {
		return refuse(http.StatusNotFound, "package_not_found", packages.RuleRequest, text, f, packages.ErrAbsent)
	}
	return refuse(http.StatusBadGateway, "upstream_failed", packages.RuleRequest, text, f, nil)
}

func broken(err error, f packages.Fact) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return refuse(http.StatusBadGateway, "upstream_failed", packages.RuleRequest, "the registry's answer is incomplete", f, err)
}

// body returns a text as the body of an answer.
func body(text []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(text)) }
