package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/pullthrough"
)

// PackageCache answers requests for packages.
type PackageCache func(ctx context.Context, r pullthrough.Request) (pullthrough.Answer, error)

// serveFromCache answers a request to a registry from the package cache. It returns false if the
// request is not for a package, which is then forwarded like any other.
func (x *exchange) serveFromCache() (bool, *refusal) {
	ecosystem, ok := x.gen.policy.Registry(x.dest.host)
	if !ok || x.action.method != http.MethodGet && x.action.method != http.MethodHead {
		return false, nil
	}
	if x.handler.back.packages == nil {
		return false, floor(http.StatusServiceUnavailable, "package_cache", packages.RuleRequest, "the policy requires the package cache, and there is none")
	}
	if ecosystem == packages.OCI && x.r.URL.Query().Has("ns") {
		// A mirror would answer with another registry's image than the one that the client asks for.
		stop := floor(http.StatusForbidden, "package_request", packages.RuleRequest, "the client asks a mirror for images of another registry (the parameter ns), which the package cache does not support")
		stop.images = true
		return false, stop
	}
	// Sandboxes share the answer, so no header, query or secret of this request is used for it.
	upstream := registryFetch{x, new(atomic.Int64)}
	answer, err := x.handler.back.packages(x.ctx, pullthrough.Request{
		Ecosystem: ecosystem, Origin: x.origin(), Path: x.action.path, Offline: x.gen.policy.Offline(),
		Gate: x.gen.policy.LockedGate(x.gen.policy.Gate(time.Now), x.handler.back.locked), Lock: x.lock,
		Dated: x.gen.policy.Dated(), Unverified: x.gen.policy.Unverified, Advisories: x.gen.policy.Advisories(),
		Content: x.gen.policy.Content(x.handler.back.locked), Scan: x.gen.policy.Scan(),
		Upstream: upstream, Accept: x.r.Header.Values("Accept"),
	})
	if err != nil {
		stop := x.cacheRefusal(err, upstream.fetched.Load())
		stop.images = ecosystem == packages.OCI
		return false, stop
	}
	if answer.Pass {
		return false, nil
	}
	defer answer.Body.Close()
	if err := x.handler.records.ready(x.gen); err != nil {
		return false, unrecorded(err)
	}
	answer.Fact.Fetched = upstream.fetched.Load()
	if err := x.partly(&answer); err != nil {
		return false, x.failed(err)
	}
	x.record.Package, x.record.Status = &answer.Fact, answer.Status
	x.deliver(answer)
	return true, nil
}

// lock implements pullthrough.Lock.
func (x *exchange) lock(a packages.Artifact, part string) (*packages.Locks, *packages.Denial) {
	return x.gen.policy.Lock(a, part, x.handler.back.locked)
}

// deliver passes on an answer of the cache.
func (x *exchange) deliver(a pullthrough.Answer) {
	h := x.w.Header()
	h.Set("Content-Type", a.Type)
	h.Set("Content-Length", strconv.FormatInt(a.Size, 10))
	// The program must revalidate its own cache each time, because the policy may change.
	h.Set("Cache-Control", "no-cache")
	if a.Digest != "" {
		h.Set("Docker-Content-Digest", a.Digest)
	}
	if a.Notice != "" {
		// npm shows this header to its user.
		h.Set("Npm-Notice", printable(a.Notice, longestField))
	}
	x.w.WriteHeader(a.Status)
	if x.action.method == http.MethodHead {
		return
	}
	if err := x.copyBody(a.Body, nil, false); err != nil {
		x.record.Error = err.Error()
		panic(http.ErrAbortHandler)
	}
}

// cacheRefusal returns the refusal for an error of the cache, which fetched some bytes before.
func (x *exchange) cacheRefusal(err error, fetched int64) *refusal {
	stop, ok := errors.AsType[*pullthrough.Refusal](err)
	if !ok {
		if r, ok := errors.AsType[*refusedFetch](err); ok {
			return r.stop
		}
		return x.failed(err)
	}
	fact := stop.Fact
	fact.Fetched = fetched
	x.record.Package = &fact
	r := &refusal{status: stop.Status, code: stop.Code, cause: stop.Cause, decision: egress.Decision{
		Effect: egress.Deny, Rule: stop.Rule, Layer: stop.Layer, Policy: x.gen.policy.Digest(), Reason: sentence(stop.Reason),
	}}
	if stop.Code == "upstream_failed" || stop.Code == "package_not_found" {
		r.failed()
	}
	return r
}

// registryFetch fetches for the package cache what the policy of the sandbox allows without an
// approval.
type registryFetch struct {
	x       *exchange
	fetched *atomic.Int64 // bytes of bodies
}

// countedBody is the body of a registry's response. It counts what is read.
type countedBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}

// refusedFetch is returned for a request that the policy does not allow.
type refusedFetch struct{ stop *refusal }

func (r *refusedFetch) Error() string { return r.stop.decision.Reason }

// maxRedirects is the maximum number of redirects of a registry.
const maxRedirects = 5

// Get implements pullthrough.Upstream.
func (u registryFetch) Get(ctx context.Context, address, accept string) (*http.Response, error) {
	return u.Send(ctx, pullthrough.Fetch{Method: http.MethodGet, URL: address, Accept: accept})
}

// Send implements pullthrough.Authorized.
func (u registryFetch) Send(ctx context.Context, f pullthrough.Fetch) (*http.Response, error) {
	var origin string
	address := f.URL
	for range maxRedirects {
		at, err := url.Parse(address)
		if err != nil {
			return nil, err
		}
		if err := u.permitted(at, f.Method); err != nil {
			return nil, err
		}
		// The token is for the registry. A server to which it redirects could keep it.
		if here := at.Scheme + "://" + at.Host; origin == "" {
			origin = here
		} else if here != origin {
			f.Token = ""
		}
		resp, err := u.get(ctx, at, f)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < 300 || resp.StatusCode > 399 || resp.StatusCode == http.StatusNotModified {
			return resp, nil
		}
		resp.Body.Close()
		to, err := at.Parse(resp.Header.Get("Location"))
		if err != nil {
			return nil, err
		}
		address = to.String()
	}
	return nil, fault.New(fault.Unavailable, "upstream_failed", u.x.dest.host+" redirects too often")
}

// permitted applies the policy to a request that the cache makes for the sandbox. Redirects and
// documents of registries lead to URLs that the sandbox did not request.
func (u registryFetch) permitted(at *url.URL, method string) error {
	tls := at.Scheme == "https"
	port := 443
	if !tls {
		port = 80
	}
	host, port, err := authority(at.Host, port)
	if err != nil || !tls && at.Scheme != "http" || at.User != nil {
		return &refusedFetch{floor(http.StatusForbidden, "package_request", packages.RuleRequest, "the registry leads to something that is no web address")}
	}
	p := u.x.gen.policy
	d := p.Connect(host, port).Decision
	if d.Effect != egress.Deny {
		d, _ = p.Request(policy.Request{Host: host, Port: port, Method: method, Path: at.EscapedPath(), TLS: tls})
	}
	if d.Effect == egress.Allow || host == u.x.dest.host && u.x.isGranted(d) {
		return nil
	}
	if host != u.x.dest.host {
		d.Reason += " The registry " + u.x.dest.host + " leads to " + at.Host + ", so network.hosts must allow this host too."
	}
	return &refusedFetch{byPolicy(d)}
}

func (u registryFetch) get(ctx context.Context, at *url.URL, f pullthrough.Fetch) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, f.Method, at.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "crannog-package-cache")
	if f.Accept != "" {
		req.Header.Set("Accept", f.Accept)
		req.Header.Set("Accept-Encoding", "gzip")
	}
	if f.Token != "" {
		req.Header.Set("Authorization", "Bearer "+f.Token)
	}
	resp, err := u.x.gen.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = countedBody{resp.Body, u.fetched}
	return resp, nil
}
