package policy

import (
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// echoes are hosts that return what they receive, so a secret could enter the sandbox.
var echoes = []string{"httpbin.org", "httpbingo.org", "postman-echo.com", "echo.free.beeceptor.com", "requestbin.com", "webhook.site", "pipedream.net", "ngrok.io", "ngrok-free.app", "interact.sh", "oast.fun", "beeceptor.com"}

// framing headers define a message's end or destination. A secret there would change the meaning of
// the request.
var framing = []string{"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive", "proxy-authorization", "proxy-connection"}

func below(host string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return host == n || strings.HasSuffix(host, "."+n) })
}

func (c *checker) secrets(s *Secrets, n *Network) {
	c.word("secrets.approve", s.Approve, approve)
	c.duration("secrets.max_ttl", s.MaxTTL, maxDuration)
	c.list("secrets.bind", len(s.Bind), maxBinds, false)
	for i := range s.Bind {
		b := &s.Bind[i]
		field := "secrets.bind[" + strconv.Itoa(i) + "]"
		c.bind(field, b)
		for j := range s.Bind[:i] {
			if o := &s.Bind[j]; o.Host == b.Host && o.port() == b.port() && strings.EqualFold(o.header(), b.header()) &&
				methodsOverlap(o.Methods, b.Methods) && pathsMayOverlap(o.Paths, b.Paths) {
				c.bad(field, "sets the header %s of %s that secrets.bind[%d] sets too", b.header(), clip(b.Host), j)
			}
		}
		t := newTable(Layer{Document: Document{Network: *n}})
		blocks, _ := t.find(b.Host, netip.Addr{})
		if blk := on(blocks, b.port()); blk != nil && blk.tunnel {
			c.bad(field+".host", "%s is a tunnel, and the gateway cannot set a header in one", clip(b.Host))
		}
	}
}

func (c *checker) bind(field string, b *Bind) {
	if !word(b.Name, "._-") {
		c.bad(field+".name", "must be up to 64 letters, digits and . _ -")
	}
	kind, rest, _ := strings.Cut(b.From, ":")
	if b.From != "" && (!slices.Contains([]string{"file", "env", "vault", "exec"}, kind) || rest == "" || len(b.From) > 512 || strings.ContainsFunc(b.From, func(r rune) bool { return r < ' ' })) {
		c.bad(field+".from", "must be file:, env:, vault: or exec: with its argument")
	}
	switch {
	case strings.Contains(b.Host, "*"):
		c.bad(field+".host", "%q: a secret goes to one host, never to a wildcard", clip(b.Host))
	case !validName(b.Host):
		c.bad(field+".host", "%q is not an exact host name in lower case", clip(b.Host))
	case below(b.Host, echoes):
		c.bad(field+".host", "%s sends back what it receives, so the secret would come inside", b.Host)
	}
	switch {
	case b.Port < 0 || b.Port > 65535:
		c.bad(field+".port", "a port is 1 to 65535")
	case b.Port == 80:
		c.bad(field+".port", "80 is plain HTTP, and a secret goes over verified TLS only")
	}
	switch {
	case b.Basic != "" && (b.Header != "" || b.Format != ""):
		c.bad(field+".basic", "is an Authorization header of its own; leave header and format out")
	case b.Basic != "" && (len(b.Basic) > 64 || strings.ContainsFunc(b.Basic, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' })):
		c.bad(field+".basic", "is a user name without colon and spaces")
	case b.Basic == "" && b.Header == "":
		c.bad(field+".header", "is missing; or give basic")
	case b.Basic == "" && !word(b.Header, "-_"):
		c.bad(field+".header", "%q is not a header name", clip(b.Header))
	case slices.Contains(framing, strings.ToLower(b.Header)):
		c.bad(field+".header", "%s frames the request; a secret must not be in it", b.Header)
	}
	if b.Format != "" && (strings.Count(b.Format, "{}") != 1 || strings.ContainsFunc(b.Format, func(r rune) bool { return r < ' ' || r >= 0x7f }) || len(b.Format) > 2048) {
		c.bad(field+".format", "must contain {} once, and only characters that a header may have")
	}
	c.requests(field, b.Methods, b.Paths)
	c.duration(field+".ttl", b.TTL, maxDuration)
	if b.MaxUses < 0 || b.MaxUses > maxCount {
		c.bad(field+".max_uses", "must be 1 or more")
	}
}

func (b *Bind) port() int {
	if b.Port == 0 {
		return 443
	}
	return b.Port
}

func (b *Bind) header() string {
	if b.Basic != "" {
		return "Authorization"
	}
	return b.Header
}

func methodsOverlap(a, b []string) bool {
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(m string) bool { return slices.Contains(b, m) })
}

// pathsMayOverlap reports whether a path could match both lists. It may return true for disjoint
// lists, because bindings that might overlap are rejected.
func pathsMayOverlap(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	for _, x := range a {
		for _, y := range b {
			x, _, wildX := strings.Cut(x, "*")
			y, _, wildY := strings.Cut(y, "*")
			if x == y || wildX && strings.HasPrefix(y, strings.TrimSuffix(x, "/")) || wildY && strings.HasPrefix(x, strings.TrimSuffix(y, "/")) {
				return true
			}
		}
	}
	return false
}

// cleanPath reports whether p is an absolute path in canonical form.
func cleanPath(p string) bool {
	return len(p) <= maxGlobLength && strings.HasPrefix(p, "/") && path.Clean(p) == p &&
		!strings.ContainsAny(p, "*?[]{}\\") && !strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd })
}
