// Package git owns inspecting a push over HTTP before it is forwarded: the refs that it changes,
// whether rules allow that, and the response that makes git print the reason of a denial. It reads
// bodies and sends nothing upstream, because HTTP is the proxy's task. A forge's own API, which can
// change refs as well, is covered by the policy's paths and methods.
package git

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Operation is the purpose of a request to a git server.
type Operation string

// The operations of git's smart HTTP protocol.
const (
	None      Operation = ""           // not git
	FetchRefs Operation = "fetch-refs" // the list of refs before a fetch
	Fetch     Operation = "fetch"
	PushRefs  Operation = "push-refs" // the list of refs before a push
	Push      Operation = "push"
)

// ContentType is the content type of git's response to a push.
const ContentType = "application/x-git-receive-pack-result"

// Classify returns the operation as which a git server may interpret a request, and the repository:
// the path without the leading slash and without .git at the end. Servers decode a path before they
// check its end, and some check the content type, so both are interpreted loosely:
// git-receive%2dpack is a push. The path has passed names.Path, so it can be decoded. Any program
// can send such a request to any server, so the result may only make a verdict stricter. Use Exact
// to make one looser.
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
		// Without a service the request belongs to the old protocol that copies files, which is a
		// fetch.
		return FetchRefs, repository("/info/refs")
	}
	return None, ""
}

// Command is one change of one ref in a push. Old is the current target of the ref according to the
// client. Git servers reject a command whose Old is wrong, so a client cannot change an existing
// ref by claiming that it is new.
type Command struct {
	Ref      string
	Old, New string // object IDs in hex; all zeros is none
}

// Creates reports whether the command creates the ref.
func (c Command) Creates() bool { return isZero(c.Old) }

// Deletes reports whether the command deletes the ref.
func (c Command) Deletes() bool { return isZero(c.New) }

// MayForce reports whether the command can drop commits. The protocol does not show whether the old
// tip is an ancestor of the new one, so this is true for every change of an existing ref, even a
// fast-forward. It is false for deletions.
func (c Command) MayForce() bool { return !c.Creates() && !c.Deletes() }

// Request is the head of a push, read before anything is forwarded.
type Request struct {
	// Head is the uncompressed body up to the pack.
	Head []byte
	// Whole reports that only a pack, or nothing, follows the commands. The commands then determine
	// the whole body, because they contain the object IDs.
	Whole        bool
	Commands     []Command
	Capabilities []string
	// Shallow lists the commits below which the client has no history.
	Shallow []string
	// Options are those of push -o. A forge may execute them, for example to merge, so the policy
	// treats them separately.
	Options []string
	// Body is the complete body, including Head.
	Body io.Reader
	// Decoded is set if the body was compressed and Body is uncompressed. The header
	// Content-Encoding and the length are then wrong and must not be forwarded. If the compressed
	// bytes were forwarded, the server could decompress them to something else than what was
	// checked.
	Decoded bool
}

// Probe reports whether this is the empty request by which git finds out whether it must
// authenticate before it sends a large pack. It changes nothing and must be allowed.
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
