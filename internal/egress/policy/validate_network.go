package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/egress"
)

func (c *checker) network(n *Network) {
	c.word("network.unlisted", n.Unlisted, unlisteds)
	c.word("network.writes", n.Writes, writes)
	c.effect("network.tunnels", n.Tunnels)
	c.effect("network.websocket", n.WebSocket)
	c.list("network.hosts", len(n.Hosts), maxHosts, false)
	seen := map[string]Ports{}
	for i := range n.Hosts {
		h := &n.Hosts[i]
		field := "network.hosts[" + strconv.Itoa(i) + "]"
		c.host(field, h)
		for _, p := range h.patterns() {
			for _, r := range h.ports() {
				for _, old := range seen[p] {
					if r.First <= old.Last && old.First <= r.Last {
						c.bad(field, "%s already has a block for port %d; only one could decide", p, max(r.First, old.First))
					}
				}
			}
			seen[p] = append(seen[p], h.ports()...)
		}
	}
}

// patterns returns the host or addresses by which the block is found.
func (h *Host) patterns() []string {
	if h.Host != "" {
		return []string{h.Host}
	}
	var out []string
	for _, a := range h.Addresses {
		if p, err := prefix(a); err == nil {
			out = append(out, p.String())
		}
	}
	return out
}

func (h *Host) ports() Ports {
	if len(h.Ports) == 0 {
		return Ports{Port(443)}
	}
	return h.Ports
}

func (c *checker) host(field string, h *Host) {
	switch {
	case h.Host != "" && h.Addresses != nil:
		c.bad(field, "has both host and addresses; make two blocks")
	case h.Host != "":
		if err := checkPattern(h.Host); err != nil {
			c.bad(field+".host", "%q: %v", clip(h.Host), err)
		}
	case len(h.Addresses) == 0:
		c.bad(field, "needs host or addresses")
	default:
		c.addresses(field, h)
	}
	c.list(field+".ports", len(h.Ports), maxEntries, h.Ports != nil && len(h.Ports) == 0)
	for i, r := range h.Ports {
		if r.First < 1 || r.Last > 65535 || r.First > r.Last {
			c.bad(field+".ports["+strconv.Itoa(i)+"]", "a port is 1 to 65535")
		}
	}
	c.prefixes(field+".cidrs", h.CIDRs)
	c.effect(field+".websocket", h.WebSocket)
	c.quorum(field+".approval.quorum", h.Approval.Quorum)
	c.duration(field+".approval.timeout", h.Approval.Timeout, maxDuration)
	if h.Tunnel && (h.EncodedSlash || h.WebSocket != "") {
		c.bad(field, "encoded_slash and websocket are about requests, and the gateway does not inspect a tunnel")
	}
	c.list(field+".rules", len(h.Rules), maxRules, false)
	ids := map[string]bool{}
	for i := range h.Rules {
		r := &h.Rules[i]
		at := field + ".rules[" + strconv.Itoa(i) + "]"
		c.rule(at, r, h.Tunnel || h.Host == "")
		if r.ID != "" && ids[r.ID] {
			c.bad(at+".id", "%q appears twice in this block", clip(r.ID))
		}
		ids[r.ID] = true
		for j := range h.Rules {
			if s := &h.Rules[j]; shadows(s, r) && (j < i || s.Do.Stricter(r.Do)) {
				c.bad(at, "is never reached: rule %d of the block %s all that it matches", j+1, verbs[s.Do])
				break
			}
		}
	}
}

var verbs = map[egress.Effect]string{egress.Allow: "allows", egress.Ask: "asks about", egress.Deny: "denies"}

// shadows reports whether rule s decides everything that rule r could.
func shadows(s, r *Rule) bool {
	if s == r || r.Do.Stricter(s.Do) || s.Do == r.Do && (s.Limits != RuleLimits{} || r.Limits != RuleLimits{}) {
		return false
	}
	return coversMethods(s.Methods, r.Methods) && coversAll(s.Paths, r.Paths)
}

// coversMethods reports whether wide includes all of narrow. An empty list means all methods.
func coversMethods(wide, narrow []string) bool {
	if len(wide) == 0 {
		return true
	}
	return len(narrow) > 0 && !slices.ContainsFunc(narrow, func(m string) bool { return !slices.Contains(wide, m) })
}

// addresses checks a block without a name. It must be a tunnel, because decisions about requests
// need a name.
func (c *checker) addresses(field string, h *Host) {
	c.prefixes(field+".addresses", h.Addresses)
	denies := len(h.Rules) > 0 && !slices.ContainsFunc(h.Rules, func(r Rule) bool { return r.Do != egress.Deny })
	if !h.Tunnel && !denies {
		c.bad(field, "has no name to judge requests by, so it needs tunnel: true, or only rules that deny")
	}
}

func (c *checker) prefixes(field string, list []string) {
	c.list(field, len(list), maxEntries, list != nil && len(list) == 0)
	seen := map[netip.Prefix]bool{}
	for i, s := range list {
		at := field + "[" + strconv.Itoa(i) + "]"
		p, err := prefix(s)
		switch {
		case err != nil:
			c.bad(at, "%q: %v", clip(s), err)
		case seen[p]:
			c.bad(at, "%s appears twice", p)
		}
		seen[p] = true
	}
}

func (c *checker) rule(field string, r *Rule, blind bool) {
	if r.ID != "" && !word(r.ID, "._-") {
		c.bad(field+".id", "must be up to 64 letters, digits and . _ -")
	}
	if r.Do == "" {
		c.bad(field+".do", "is missing: allow, ask or deny")
	}
	c.effect(field+".do", r.Do)
	if blind && (r.Methods != nil || r.Paths != nil || r.Limits.Requests != 0) {
		c.bad(field, "methods, paths and limits.requests are about requests, and the gateway does not inspect a tunnel")
	}
	c.requests(field, r.Methods, r.Paths)
	l := r.Limits
	if l.Requests < 0 || l.Bytes < 0 || l.Connections < 0 || l.Requests > maxCount || l.Bytes > maxCount || l.Connections > 65536 {
		c.bad(field+".limits", "a limit is a positive number")
	}
	if (l.Requests > 0) != (l.Per > 0) {
		c.bad(field+".limits", "requests and per go together")
	}
	c.duration(field+".limits.per", l.Per, Duration(24*time.Hour))
	if r.Do == egress.Deny && l != (RuleLimits{}) {
		c.bad(field+".limits", "a rule that denies allows nothing that could be limited")
	}
}

// requests checks methods and paths.
func (c *checker) requests(field string, methods, paths []string) {
	c.list(field+".methods", len(methods), maxEntries, methods != nil && len(methods) == 0)
	for i, m := range methods {
		at := field + ".methods[" + strconv.Itoa(i) + "]"
		switch {
		case !word(m, "-_") || m != strings.ToUpper(m):
			c.bad(at, "%q is not a method in upper case", clip(m))
		case m == "CONNECT" || m == "TRACE":
			c.bad(at, "%s is refused everywhere", m)
		case slices.Contains(methods[:i], m):
			c.bad(at, "%s appears twice", m)
		}
	}
	c.list(field+".paths", len(paths), maxEntries, paths != nil && len(paths) == 0)
	for i, p := range paths {
		at := field + ".paths[" + strconv.Itoa(i) + "]"
		c.glob(at, p, "/", "**/")
		if strings.Contains(strings.ReplaceAll(p, "%2F", ""), "%") {
			c.bad(at, "%q: write characters as they are; only %%2F may be escaped", clip(p))
		}
	}
}
