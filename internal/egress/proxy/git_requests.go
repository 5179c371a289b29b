package proxy

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/git"
	"github.com/crannog/crannog/internal/egress/policy"
)

const (
	// fetchGrant is how long an approval of a fetch is valid, because git sends several requests
	// for one fetch.
	fetchGrant = 10 * time.Minute
	// advertisementLife is how long a server counts as a git server after it has listed its refs.
	// git may take long to pack objects between the list and a large push.
	advertisementLife = time.Hour
)

// gitRemote is a service of a repository on a server.
type gitRemote struct {
	location
	tls bool
	git.Endpoint
}

// gitRequest describes a request that is exactly one of git's. A request that only resembles git's,
// by its path or content type, has the operation None and is decided like an ordinary request.
// Otherwise any program could send any request as a fetch.
type gitRequest struct {
	op git.Operation
	at gitRemote
}

// classify determines the git operation of a request.
func (x *exchange) classify() {
	op, endpoint := git.Exact(x.action.method, x.action.path, x.r.URL.RawQuery, x.r.Header)
	x.action.git = gitRequest{op, gitRemote{location{x.dest.host, x.dest.port}, x.dest.tls, endpoint}}
	if (op == git.Fetch || op == git.Push) && !x.handler.git.advertised.has(x.action.git.at) {
		// The server has not shown that it is a git server, so the request may mean anything.
		x.action.git.op = git.None
	}
}

// special decides about requests by their effect, where that is more specific than their path. It
// can only make a verdict stricter, with one exception: a fetch from a remote that a rule lists
// sends a POST but writes nothing.
func (x *exchange) special(d egress.Decision) (egress.Decision, *refusal) {
	x.classify()
	if x.action.git.op == git.None {
		d = x.publication(d)
	}
	var stop *refusal
	for _, r := range x.action.readings {
		op, repo := git.Classify(r.method, r.path, x.r.URL.RawQuery, x.r.Header.Get("Content-Type"))
		switch op {
		case git.None:
		case git.Push:
			d, stop = x.decidePush(d, repo)
		case git.FetchRefs, git.Fetch, git.PushRefs:
			d, stop = x.decideFetch(d, repo)
		}
		if stop != nil {
			return d, stop
		}
	}
	return d, nil
}

// decideFetch returns the policy's decision about a fetch, or about a request that a server may
// interpret as one.
func (x *exchange) decideFetch(d egress.Decision, repo string) (egress.Decision, *refusal) {
	if d.Effect == egress.Deny {
		return d, nil
	}
	fetchDecision := x.gen.policy.Fetch(x.dest.host, repo)
	asks := fetchDecision.Effect == egress.Ask && (d.Effect == egress.Allow || x.isGranted(d))
	writes := policy.ListsRemote(fetchDecision) && d.Effect == egress.Ask && d.Rule == policy.RuleWrites
	if asks || writes {
		sure, stop := x.surelyFetches()
		switch {
		case stop != nil:
			return d, stop
		case sure && writes:
			d = fetchDecision
			x.flow.mu.Lock()
			x.progress.fetches = repo
			x.flow.mu.Unlock()
		case sure:
			return x.askFetch(fetchDecision, repo)
		}
	}
	if fetchDecision.Effect.Stricter(d.Effect) || asks {
		d = fetchDecision
	}
	return d, nil
}

// surelyFetches reports whether every part of the request, including its body, belongs to a fetch.
func (x *exchange) surelyFetches() (bool, *refusal) {
	switch x.action.git.op {
	case git.FetchRefs, git.PushRefs:
		return x.r.ContentLength == 0, nil
	case git.Fetch:
	case git.None, git.Push:
		return false, nil
	}
	if err := x.hold(); err != nil {
		return false, x.holdRefusal(err)
	}
	if x.action.body == nil {
		return false, nil
	}
	return git.IsFetch(x.action.body.reader(), strings.Join(x.r.Header.Values("Content-Encoding"), ",")), nil
}

// askFetch requests approval once for all requests of one fetch. The approval covers requests that
// are git's in every part, and that the network policy allows.
func (x *exchange) askFetch(d egress.Decision, repo string) (egress.Decision, *refusal) {
	b := x.handler
	key := fetchKey{x.action.git.at, d.Rule, d.Policy}
	key.Service = "" // the list of refs before a push is a read too
	if b.git.fetches.has(key) {
		d.Effect = egress.Allow
		return d, nil
	}
	q := egress.ApprovalRequest{Kind: egress.AskRequest, Summary: "fetch from " + x.origin() + x.action.git.at.Base}
	var stop *refusal
	if q.Facts, stop = x.facts(); stop != nil {
		return d, stop
	}
	q.Facts["git"], q.Facts["repo"] = "fetch", repo
	q.Facts["covers"] = "for " + fetchGrant.String() + ": GET " + x.action.git.at.Base + "/info/refs?service=git-…, and POST " + x.action.git.at.Base + "/git-upload-pack with what git sends to fetch"
	id, stop := b.requestApproval(x.ctx, x.gen, d, x.dest.host, x.dest.port, q)
	if stop != nil {
		return d, stop
	}
	b.git.fetches.add(key, fetchGrant)
	x.record.Approval = id
	d.Effect = egress.Allow
	return d, nil
}

// fetchKey identifies what an approval of a fetch covers.
type fetchKey struct {
	gitRemote
	rule, policy string
}

// advertises passes on a response, and records that the server is a git server if the response
// lists refs.
func (x *exchange) advertises(resp *http.Response, answer io.Reader) io.Reader {
	if x.action.git.op != git.FetchRefs && x.action.git.op != git.PushRefs || len(resp.Header["Content-Encoding"]) > 0 {
		return answer
	}
	answer, isGitServer := git.Advertises(x.action.git.at.Service, resp.StatusCode, resp.Header["Content-Type"], answer)
	if isGitServer {
		x.handler.git.advertised.add(x.action.git.at, advertisementLife)
	}
	return answer
}
