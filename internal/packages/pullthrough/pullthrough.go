// Package pullthrough owns answering requests for packages from the cache: it fetches what is
// missing, verifies it against the registry's digests, and applies the gate. It passes on no byte
// of a file before it has verified the whole file.
package pullthrough

import (
	"context"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/advisory"
	"github.com/crannog/crannog/internal/packages/keyring"
	"github.com/crannog/crannog/internal/packages/store"
)

// Limits of what a registry may send.
const (
	// maxDocument is the maximum size of a document. The largest packages have documents of some
	// tens of megabytes.
	maxDocument = 64 << 20
	// DocumentLife is how long a document is used without asking the registry again.
	DocumentLife = 10 * time.Minute
	// maxIndexes limits how many parsed documents are cached.
	maxIndexes = 64
	// maxParsers limits how many documents are parsed at the same time, because each takes several
	// times its size in memory.
	maxParsers = 2
)

// Storage stores fetched documents and files.
type Storage interface {
	// Find returns an entry and its verified content. The error has the kind NotFound if there is
	// none.
	Find(key string) (store.Entry, *os.File, error)
	// Keep stores a content. If it fails, the next request fetches the content again.
	Keep(ctx context.Context, e store.Entry, content *os.File) error
	// Create creates an unnamed file.
	Create() (*os.File, error)
	advisory.Files
	keyring.Files
}

// Upstream sends requests to registries, as far as the sandbox's policy allows it.
type Upstream interface {
	Get(ctx context.Context, url, accept string) (*http.Response, error)
}

// Request is a sandbox's request for a package.
type Request struct {
	Ecosystem packages.Ecosystem
	// Origin is the scheme and the host of the registry.
	Origin string
	// Path is the escaped path.
	Path string
	// Offline is set if nothing may be fetched.
	Offline bool
	// Dated is set if the gate needs times of publication.
	Dated bool
	Gate  packages.Gate
	// Unverified reports whether the policy permits a package that cannot be verified. Nil permits
	// none.
	Unverified func(a packages.Artifact) bool
	// Advisories is the policy's rule for versions with advisories, or nil.
	Advisories *packages.AdvisoryRule
	// Content is the policy's rule for what packages contain, or nil.
	Content *packages.ContentRule
	// Scan is the policy's rule for scans, or nil.
	Scan *packages.ScanRule
	// Lock restricts files to those that lockfiles name. Nil requires none.
	Lock     Lock
	Upstream Upstream
	// Accept has the lines of the client's header, for manifests of images. It decides whether the
	// client gets the answer, and nothing is fetched with it.
	Accept []string
}

// Answer is the response to a request.
type Answer struct {
	// Pass is set if the request is not for a package. Nothing else is set then.
	Pass   bool
	Status int
	Type   string
	Size   int64
	// Digest is the name of a document by its digest, in protocols that have one.
	Digest string
	// Ranges is set if the client may get a part of the body, which then is an io.Seeker. All of it
	// was verified.
	Ranges bool
	Body   io.ReadCloser
	Fact   packages.Fact
	// Notice is a sentence for people about what the gate removed.
	Notice string
}

// Refusal is the error of a request that gets no package. It has the reason that the client sees.
type Refusal struct {
	packages.Denial
	Status int
	Code   string
	Fact   packages.Fact
	Cause  error
}

// Error returns the reason.
func (r *Refusal) Error() string { return r.Reason }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Cause }

// Cache answers requests of all sandboxes.
type Cache struct {
	storage    Storage
	now        func() time.Time
	protocols  map[packages.Ecosystem]packages.Protocol
	parsers    chan struct{} // has an element for each document that is being parsed
	advisories *advisory.Reader

	maxPlain int64         // the limit of a file's size without a look at the free space
	large    chan struct{} // has an element while a larger file is fetched

	mu      sync.Mutex
	flights map[string]chan struct{} // by key; closed when the fetch has ended
	indexes map[string]any           // parsed documents, by ecosystem and key
	weighed weighedIndexes           // parsed documents with a weight
	tokens  tokens
	inspected
}

// New returns a cache. now returns the time, so that tests can set it.
func New(storage Storage, now func() time.Time) *Cache {
	return &Cache{
		storage: storage, now: now, protocols: newProtocols(now, keyring.NewReader(storage)), parsers: make(chan struct{}, maxParsers),
		maxPlain: store.MaxBlob, large: make(chan struct{}, 1),
		flights: map[string]chan struct{}{}, indexes: map[string]any{}, advisories: advisory.NewReader(storage),
	}
}

// fetchOnce calls fetch and reports true, unless another request is fetching the same key. Then it
// waits for that request and reports false. The caller then looks into the storage again.
func (c *Cache) fetchOnce(ctx context.Context, key string, fetch func() error) (bool, error) {
	c.mu.Lock()
	if other, busy := c.flights[key]; busy {
		c.mu.Unlock()
		select {
		case <-other:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	done := make(chan struct{})
	c.flights[key] = done
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.flights, key)
		c.mu.Unlock()
		close(done)
	}()
	return true, fetch()
}

// parsed returns the result of parse, which it remembers under a key that is not empty.
func (c *Cache) parsed(ctx context.Context, e packages.Ecosystem, key string, parse func() (any, error)) (any, error) {
	full := string(e) + " " + key
	c.mu.Lock()
	found := c.indexes[full]
	if w, ok := c.weighed.all[full]; ok {
		found = w
	}
	c.mu.Unlock()
	if key != "" && found != nil {
		return found, nil
	}
	if err := c.acquireParser(ctx); err != nil {
		return nil, err
	}
	defer c.releaseParser()
	created, err := parse()
	if err != nil || key == "" {
		return created, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w, ok := created.(weighed); ok {
		c.weighed.keep(full, w)
		return created, nil
	}
	for other := range c.indexes {
		if len(c.indexes) < maxIndexes {
			break
		}
		delete(c.indexes, other)
	}
	c.indexes[full] = created
	return created, nil
}

// acquireParser waits until fewer than maxParsers documents are being parsed.
func (c *Cache) acquireParser(ctx context.Context) error {
	select {
	case c.parsers <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Cache) releaseParser() { <-c.parsers }

func refuse(status int, code, rule, reason string, f packages.Fact, cause error) *Refusal {
	f.Verdict = packages.Refused
	return &Refusal{Denial: packages.Denial{Rule: rule, Layer: "floor", Reason: reason}, Status: status, Code: code, Fact: f, Cause: cause}
}

// denied returns the refusal for a denial of the gate.
func denied(d *packages.Denial, f packages.Fact) *Refusal {
	f.Verdict = packages.Refused
	status := http.StatusForbidden
	if d.Hidden {
		status = http.StatusNotFound
	}
	return &Refusal{Denial: *d, Status: status, Code: "package_denied", Fact: f}
}

func offline(f packages.Fact) *Refusal {
	return refuse(http.StatusGatewayTimeout, "package_offline", packages.RuleOffline, "the cache does not have "+packages.Artifact{Ecosystem: f.Ecosystem, Name: f.Name, Version: f.Version}.String()+", and packages.offline forbids fetching it", f, nil)
}
