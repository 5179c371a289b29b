// Package git owns what a push over HTTP says before it is passed on: the refs
// that it wants to change, whether rules let it, and the answer that git
// prints when they do not. It reads bodies and writes none upstream: HTTP is
// the proxy's. A forge's own API, which can move refs as well, is a matter of
// the policy's paths and methods.
package git

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Operation is what a request wants of a git server.
type Operation string

// The operations of git's smart HTTP protocol.
const (
	None      Operation = ""           // not git
	FetchRefs Operation = "fetch-refs" // the list of refs, before a fetch
	Fetch     Operation = "fetch"
	PushRefs  Operation = "push-refs" // the list of refs, before a push
	Push      Operation = "push"
)

// ContentType is what git's answer to a push must have.
const ContentType = "application/x-git-receive-pack-result"

// Classify returns what a request may be to a git server, and of which
// repository: its path without the slash before it and .git behind it. Servers
// decode a path before they look at its end, and some look at the content type,
// so both are judged in the loosest reading: git-receive%2dpack is a push. The
// path has passed names.Path, so that it can be decoded.
//
// Any program can send such a request to any server, so the result may only
// tighten a verdict. What may loosen one is Exact.
func Classify(method, escapedPath, query, contentType string) (Operation, string) {
	path, err := url.PathUnescape(escapedPath)
	if err != nil {
		path = escapedPath
	}
	path = strings.TrimRight(path, "/")
	repository := func(suffix string) string {
		if !hasSuffixFold(path, suffix) {
			return strings.TrimSuffix(strings.Trim(path, "/"), ".git")
		}
		return strings.TrimSuffix(strings.Trim(path[:len(path)-len(suffix)], "/"), ".git")
	}
	switch {
	case method == http.MethodPost && (hasSuffixFold(path, "/git-receive-pack") || hasPrefixFold(contentType, pushType)):
		return Push, repository("/git-receive-pack")
	case method == http.MethodPost && (hasSuffixFold(path, "/git-upload-pack") || hasPrefixFold(contentType, fetchType)):
		return Fetch, repository("/git-upload-pack")
	case hasSuffixFold(path, "/info/refs") && (method == http.MethodGet || method == http.MethodHead):
		if strings.Contains(strings.ToLower(unescape(query)), "git-receive-pack") {
			return PushRefs, repository("/info/refs")
		}
		// Without a service it is the protocol that copies files: a fetch.
		return FetchRefs, repository("/info/refs")
	}
	return None, ""
}

// A Command is one change of one ref that a push asks for. Old is what the
// client says that the ref is: git servers refuse a command whose Old is not
// true, so a claim that a ref is new cannot move one that exists.
type Command struct {
	Ref      string
	Old, New string // object IDs in hex; all zeros is none
}

// Creates reports whether the ref is not to exist yet.
func (c Command) Creates() bool { return isZero(c.Old) }

// Deletes reports whether the ref is not to exist afterwards.
func (c Command) Deletes() bool { return isZero(c.New) }

// MayForce reports whether the command can drop commits. Whether the old tip is
// an ancestor of the new one is not on the wire, so this is so for every
// change of a ref that exists, also for what is a fast-forward in truth. A
// deletion is its own thing.
func (c Command) MayForce() bool { return !c.Creates() && !c.Deletes() }

// A Request is the head of a push, read before anything is passed on.
type Request struct {
	// Head is all before the pack, byte for byte as it was before compression.
	Head []byte
	// Whole reports that a pack follows the commands, or nothing: the commands
	// then bind all of the body, because the object IDs in them do.
	Whole        bool
	Commands     []Command
	Capabilities []string
	// Shallow are the commits below which the client has no history.
	Shallow []string
	// Options are what push -o sends. To a forge they can be orders, such as
	// to merge, so they need leave of their own.
	Options []string
	// Body is the whole request's body again, byte for byte, from its start.
	Body io.Reader
	// Decoded is true where the body came compressed and Body is what it was
	// before. The header Content-Encoding and the length are then wrong and
	// must not be passed on. Passing on the compressed bytes would let the
	// server unpack something else than what was judged.
	Decoded bool
}

// Probe reports whether this is the empty request by which git finds out
// whether it must authenticate before it sends a large pack. It changes
// nothing and has to pass.
func (r *Request) Probe() bool { return len(r.Commands) == 0 }

func (r *Request) has(capability string) bool {
	return slices.Contains(r.Capabilities, capability)
}

func isZero(id string) bool { return id != "" && strings.Trim(id, "0") == "" }

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}

func hasPrefixFold(s, prefix string) bool {
	s = strings.TrimSpace(s)
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

func unescape(query string) string {
	if plain, err := url.QueryUnescape(query); err == nil {
		return plain
	}
	return query
}
