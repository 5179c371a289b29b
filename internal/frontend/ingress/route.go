package ingress

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/signature"
	"github.com/crannog/crannog/internal/sandbox"
)

// The headers by which SDKs name a sandbox and a port in it.
const (
	IDHeader   = "E2b-Sandbox-Id"
	PortHeader = "E2b-Sandbox-Port"
)

const filesPath = "/files"

// target is a port of a sandbox.
type target struct {
	id   string
	port int
	// byURL means that the request names no sandbox and was routed by its signature. It shares its
	// origin with the control plane.
	byURL bool
	// shared means that a browser assigns the answer to the origin of the control plane and the
	// console.
	shared bool
}

// Match reports whether a request is for a sandbox and not for the control plane. It reads only the
// request's head and makes no calls.
func (p *Proxy) Match(r *http.Request) bool {
	if _, _, ok := p.hostTarget(r.Host); ok {
		return true
	}
	if hasRoutingHeader(r.Header) {
		return true
	}
	return r.URL.Path == filesPath && fileOps(r.Method) != nil
}

func hasRoutingHeader(h http.Header) bool {
	return len(h[IDHeader]) > 0 || len(h[PortHeader]) > 0
}

// route finds the target. A host name that names a sandbox overrides headers: a page of a program
// inside has that origin, and must not reach another sandbox by setting a header.
func (p *Proxy) route(r *http.Request) (target, *refusal) {
	if port, id, ok := p.hostTarget(r.Host); ok {
		return parseTarget(id, port)
	}
	if hasRoutingHeader(r.Header) {
		ids, ports := r.Header[IDHeader], r.Header[PortHeader]
		// With two values, a proxy in front of this one could use another value than this one does.
		if len(ids) != 1 || len(ports) != 1 || ids[0] == "" || ports[0] == "" {
			return target{}, badRequest("missing header")
		}
		to, refusal := parseTarget(ids[0], ports[0])
		// Only pages send an Origin. An attacker's page could request an address of this origin
		// with such headers, and the browser would later show the cached answer to a user who opens
		// that address.
		to.shared = len(r.Header["Origin"]) > 0
		return to, refusal
	}
	return p.routeSigned(r)
}

// parseTarget parses an ID and a port.
func parseTarget(id, port string) (target, *refusal) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return target{}, badRequest("Invalid sandbox port")
	}
	if !isID(id) {
		return target{}, badRequest("Invalid sandbox ID")
	}
	return target{id: id, port: int(n)}, nil
}

func isID(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// hostTarget parses {port}-{id}.domain. Anything may follow a second hyphen: old clients put their
// own ID there.
func (p *Proxy) hostTarget(host string) (port, id string, ok bool) {
	name := strings.ToLower(host)
	if withoutPort, _, err := net.SplitHostPort(name); err == nil {
		name = withoutPort
	}
	if p.Domain != "" && strings.EqualFold(host, p.Domain) {
		return "", "", false // the server's own name may look like a sandbox's
	}
	label, rest, dotted := strings.Cut(name, ".")
	if !dotted || rest == "" {
		return "", "", false
	}
	parts := strings.Split(label, "-")
	if len(parts) < 2 || parts[0] == "" || strings.Trim(parts[0], "0123456789") != "" || !isID(parts[1]) {
		return "", "", false
	}
	return parts[0], parts[1], true
}

// fileOps returns the operations that a file URL's signature may allow, by HTTP method. For a
// browser's preflight both are possible, because the method that follows is not known.
func fileOps(method string) []signature.Op {
	switch method {
	case http.MethodGet, http.MethodHead:
		return []signature.Op{signature.Read}
	case http.MethodPost:
		return []signature.Op{signature.Write}
	case http.MethodOptions:
		return []signature.Op{signature.Read, signature.Write}
	}
	return nil
}

// routeSigned finds the sandbox for which a file URL was signed. The guest checks the signature
// again, and its expiry.
func (p *Proxy) routeSigned(r *http.Request) (target, *refusal) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return target{}, badRequest("the query is malformed")
	}
	if query.Get("signature") == "" {
		return target{}, unauthorized("missing signature query parameter")
	}
	expires, err := signature.ParseExpiration(query.Get("signature_expiration"))
	if err != nil {
		return target{}, unauthorized("invalid signature")
	}
	id := p.signer(r, query, expires)
	if id == "" {
		return target{}, unauthorized("invalid signature")
	}
	return target{id: id, port: guestboot.Port, byURL: true, shared: true}, nil
}

// signer finds the sandbox whose token made the signature, first among running ones. An expired
// signature does not find a paused sandbox, because that would resume it.
func (p *Proxy) signer(r *http.Request, query url.Values, expires int64) (id string) {
	match := func(s sandbox.Sandbox) bool {
		if verify(r.Method, query, expires, s) {
			id = s.ID
		}
		return id == ""
	}
	if p.Traffic.LiveAll(match); id != "" || signature.Expired(expires, time.Now().Unix()) {
		return id
	}
	// Only one search runs at a time: the list is read from the disk, and anyone can send such
	// requests.
	p.search.Lock()
	defer p.search.Unlock()
	p.Waker.AllResumingOnTraffic(r.Context(), match)
	return id
}

// verify reports whether a file URL is signed with a sandbox's token.
func verify(method string, query url.Values, expires int64, s sandbox.Sandbox) bool {
	return slices.ContainsFunc(fileOps(method), func(op signature.Op) bool {
		return signature.Verify(query.Get("signature"), query.Get("path"), op, query.Get("username"), s.AccessToken, expires)
	})
}
