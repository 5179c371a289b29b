// Package registry owns the communication with image registries: which ones may be used,
// downloading blobs in parallel and continuing them after an interruption, and pushing images.
package registry

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/blob"
)

// CodeBudget is the code of the error that Options.Reserve returns if the budget is exceeded.
const CodeBudget = "image_budget"

// Options configure a client. A zero field stands for the default.
type Options struct {
	Rules Rules
	// Keychain finds credentials; nil uses Docker's configuration and its helpers.
	Keychain authn.Keychain
	// Transport is for tests; nil uses the package's own transport.
	Transport http.RoundTripper
	// Stall is how long a registry may send no data.
	Stall time.Duration
	// Tries is the maximum number of requests for a blob without progress. Each request continues
	// where the last one ended.
	Tries int
	// Parallel limits how many blobs are fetched at once.
	Parallel int
	// Reserve is called with the number of bytes before blobs are downloaded. Nil means no limit.
	Reserve func(bytes int64) error
	Log     *slog.Logger
}

// Client talks to registries.
type Client struct {
	o Options
}

// New returns a client.
func New(o Options) *Client {
	if o.Keychain == nil {
		o.Keychain = authn.DefaultKeychain
	}
	if o.Stall == 0 {
		o.Stall = 30 * time.Second
	}
	if o.Tries == 0 {
		o.Tries = 4
	}
	if o.Parallel == 0 {
		o.Parallel = 4
	}
	if o.Reserve == nil {
		o.Reserve = func(int64) error { return nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{o: o}
}

// Event is the progress of one blob.
type Event struct {
	Digest      v1.Hash
	Done, Total int64
	// Present is set if the blob was already in the store.
	Present bool
}

// Parse parses a reference like Docker: "python" is docker.io/library/python:latest.
func Parse(ref string) (name.Reference, error) {
	const maxReference = 512
	if len(ref) > maxReference {
		return nil, fault.Newf(fault.Invalid, "image_reference_invalid", "an image reference has at most %d characters", maxReference)
	}
	r, err := name.ParseReference(ref)
	isDots := func(part string) bool { return part == "." || part == ".." }
	if err != nil || slices.ContainsFunc(strings.Split(ref, "/"), isDots) {
		return nil, fault.Newf(fault.Invalid, "image_reference_invalid", "%.200q does not name an image", ref).
			WithHint("a reference is [REGISTRY/]NAME[:TAG][@sha256:DIGEST], such as python:3.12-slim")
	}
	return r, nil
}

// repository is one repository on one host, with its credentials.
type repository struct {
	name.Repository
	transport http.RoundTripper
	client    *http.Client
}

// Actions for which credentials are requested.
const (
	toPull = transport.PullScope
	toPush = transport.PushScope
)

// open asks a registry how to authenticate, and finds the credentials.
func (c *Client) open(ctx context.Context, repo name.Repository, action string) (*repository, error) {
	if c.o.Rules.insecure(repo.RegistryStr()) {
		r, err := name.NewRepository(repo.Name(), name.Insecure)
		if err != nil {
			return nil, err
		}
		repo = r
	}
	auth, err := c.o.Keychain.Resolve(repo)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unauthenticated, "registry_credentials", fmt.Sprintf("the credentials for %s cannot be read", repo.RegistryStr())).
			WithHint("check ~/.docker/config.json and the credential helpers in it")
	}
	guarded := &guard{inner: c.o.Transport, rules: c.o.Rules, stall: c.o.Stall}
	if guarded.inner == nil {
		guarded.inner = c.newTransport(repo.RegistryStr())
	}
	rt, err := transport.NewWithContext(ctx, repo.Registry, auth, transport.NewRetry(guarded), []string{repo.Scope(action)})
	if err != nil {
		return nil, explain(ctx, repo.String(), err)
	}
	return &repository{Repository: repo, transport: rt, client: &http.Client{Transport: rt, CheckRedirect: checkRedirect}}, nil
}

// Pulled identifies the result of a pull.
type Pulled struct {
	Manifest v1.Hash // of the image for the platform
	Resolved v1.Hash // digest to which the reference referred: the image, or an index of several
	Source   string  // the registry that answered
}

// Pull downloads an image and all of its blobs into a store. It tries the registries that may have
// it in turn: the mirrors, and the one in the reference. Blobs are downloaded in parallel, but
// report is called by one goroutine at a time.
func (c *Client) Pull(ctx context.Context, ref name.Reference, platform v1.Platform, blobs *blob.Store, report func(Event)) (Pulled, error) {
	report = oneAtATime(report)
	if err := c.o.Rules.check(ref.Context()); err != nil {
		return Pulled{}, err
	}
	var lastErr error
	for _, source := range c.o.Rules.sources(ref) {
		pulled, err := c.pullFrom(ctx, source, platform, blobs, report)
		if err == nil {
			pulled.Source = source.Context().RegistryStr()
			return pulled, nil
		}
		if ctx.Err() != nil || !mayTryNext(err) {
			return Pulled{}, err
		}
		c.o.Log.Warn("a registry did not serve an image", "registry", source.Context().RegistryStr(), "image", ref.String(), "err", err)
		lastErr = err // the last error is that of the registry in the reference
	}
	return Pulled{}, lastErr
}

// oneAtATime serialises calls of report.
func oneAtATime(report func(Event)) func(Event) {
	var mu sync.Mutex
	return func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		report(e)
	}
}

// mayTryNext reports whether another registry may have an image after this error of one.
func mayTryNext(err error) bool {
	switch fault.KindOf(err) {
	case fault.Unavailable, fault.NotFound, fault.Denied, fault.Unauthenticated, fault.Exhausted, fault.Timeout, fault.Internal:
		return fault.CodeOf(err) != "disk_full" && fault.CodeOf(err) != CodeBudget
	case fault.Invalid, fault.Exists, fault.Conflict, fault.Unsupported, fault.Canceled:
	}
	return false
}
