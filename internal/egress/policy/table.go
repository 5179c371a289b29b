package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/egress"
)

// table holds the blocks of one layer, by their kind of pattern.
type table struct {
	layer    string
	exact    map[string][]*block
	suffix   map[string][]*block // by the name after *.
	prefixes []network           // the longest first
	blocks   []*block
	unlisted string
}

type network struct {
	prefix netip.Prefix
	block  *block
}

type block struct {
	name         string // host: and the pattern
	layer        string
	ports        Ports
	tunnel       bool
	private      []netip.Prefix
	encodedSlash bool
	webSocket    egress.Effect
	quorum       int
	timeout      time.Duration
	rules        []rule
	// needs is set if a rule can decide only when the request is known.
	needs bool
}

type rule struct {
	name    string
	do      egress.Effect
	methods []string
	paths   []glob
	limits  Limits
}

func newTable(l Layer) *table {
	t := &table{layer: l.Kind, exact: map[string][]*block{}, suffix: map[string][]*block{}, unlisted: l.Document.Network.Unlisted}
	for _, h := range l.Document.Network.Hosts {
		b := newBlock(l.Kind, h)
		t.blocks = append(t.blocks, b)
		if name, wild := strings.CutPrefix(h.Host, "*."); wild {
			t.suffix[name] = append(t.suffix[name], b)
		} else if name != "" {
			t.exact[name] = append(t.exact[name], b)
		}
		for _, a := range h.Addresses {
			if p, err := prefix(a); err == nil {
				t.prefixes = append(t.prefixes, network{p, b})
			}
		}
	}
	slices.SortStableFunc(t.prefixes, func(a, b network) int { return cmp.Compare(b.prefix.Bits(), a.prefix.Bits()) })
	return t
}

// title returns the name of the host's block in rules and messages.
func (h Host) title() string {
	if h.Host != "" {
		return h.Host
	}
	if len(h.Addresses) > 0 {
		return h.Addresses[0]
	}
	return ""
}

func newBlock(layer string, h Host) *block {
	b := &block{
		name: "host:" + h.title(), layer: layer, ports: h.ports(), tunnel: h.Tunnel, encodedSlash: h.EncodedSlash,
		webSocket: h.WebSocket, quorum: h.Approval.Quorum, timeout: time.Duration(h.Approval.Timeout),
	}
	for _, c := range h.CIDRs {
		if p, err := prefix(c); err == nil {
			b.private = append(b.private, p)
		}
	}
	for i, r := range h.Rules {
		id := r.ID
		if id == "" {
			id = "rule-" + strconv.Itoa(i+1)
		}
		compiled := rule{name: b.name + "/" + id, do: r.Do, methods: r.Methods}
		for _, p := range r.Paths {
			compiled.paths = append(compiled.paths, *newGlob(p))
		}
		compiled.limits = r.Limits.limits(compiled.name)
		b.needs = b.needs || len(r.Methods) > 0 || len(r.Paths) > 0 || r.Limits.Requests > 0
		b.rules = append(b.rules, compiled)
	}
	return b
}

// exactNameSpecificity is the specificity of an exact name. The specificity of wildcards and
// prefixes is their length.
const exactNameSpecificity = 1 << 20

// find returns the blocks with the most specific pattern for a host, for all ports. A wildcard thus
// cannot allow what the block of the exact host denies.
func (t *table) find(host string, a netip.Addr) (blocks []*block, specific int) {
	if a.IsValid() {
		for _, n := range t.prefixes {
			if n.prefix.Contains(a) && (blocks == nil || n.prefix.Bits()+1 == specific) {
				blocks, specific = append(blocks, n.block), n.prefix.Bits()+1
			}
		}
		return blocks, specific
	}
	if b := t.exact[host]; b != nil {
		return b, exactNameSpecificity
	}
	if len(t.suffix) == 0 {
		return nil, 0
	}
	for rest := host; ; {
		_, after, more := strings.Cut(rest, ".")
		if !more {
			return nil, 0
		}
		if b := t.suffix[after]; b != nil {
			return b, len(after)
		}
		rest = after
	}
}

// on returns the block for a port. Blocks of one pattern never share a port.
func on(blocks []*block, port int) *block {
	for _, b := range blocks {
		if b.ports.has(port) {
			return b
		}
	}
	return nil
}

// lookup is the connection or request about which a block decides.
type lookup struct {
	host   string
	addr   netip.Addr // valid where host is an address
	port   int
	mode   mode
	method string
	path   target
	// upgrade is set on requests to open a WebSocket.
	upgrade bool
	steps   *[]Step // for Explain
}

type mode int

const (
	judge   mode = iota // decides about one request
	opaque              // decides about bytes that are not inspected
	reaches             // decides whether any request could be allowed
)

func (q *lookup) read() bool { return q.method == "GET" || q.method == "HEAD" }

// match reports whether the rule matches the request exactly, and whether it matches the request
// loosely: in a form in which a server may interpret it.
func (r *rule) match(q *lookup) (exact, loose bool) {
	exact, loose = len(r.methods) == 0, len(r.methods) == 0
	for _, m := range r.methods {
		exact = exact || m == q.method
		loose = loose || exact || r.do != egress.Allow && strings.EqualFold(m, q.method)
	}
	if !loose || len(r.paths) == 0 {
		return exact, loose
	}
	exactPath, loosePath := false, false
	for i := range r.paths {
		g := &r.paths[i]
		if g.match(q.path.exact, false) {
			exactPath, loosePath = true, true
			break
		}
		if r.do != egress.Allow && !loosePath {
			loosePath = g.match(q.path.exact, true) || g.match(q.path.loose, true)
		}
	}
	return exact && exactPath, loose && loosePath
}

// verdict returns the block's verdict. Rules that make it stricter also match what a server may
// treat as the same path: other case, an escaped slash, a trailing slash. Rules that allow match
// only the exact request.
func (b *block) verdict(q *lookup) verdict {
	v := verdict{effect: egress.Deny, rule: b.name, layer: b.layer, why: unmatched, block: b}
	var possible *rule
	for i := range b.rules {
		r := &b.rules[i]
		exact, loose := true, true
		if q.mode == judge {
			exact, loose = r.match(q)
		} else if q.mode == reaches && r.do == egress.Deny {
			exact = len(r.methods) == 0 && len(r.paths) == 0
			loose = exact
		}
		switch {
		case r.do == egress.Deny && loose:
			return verdict{effect: egress.Deny, rule: r.name, layer: b.layer, why: denied, block: b, explicit: true}
		case r.do == egress.Ask && loose && !exact && possible == nil:
			possible = r
		case r.do == egress.Deny, !exact:
		case v.why == unmatched, q.mode != reaches && r.do == egress.Ask && v.effect == egress.Allow,
			q.mode == reaches && r.do == egress.Allow && v.effect == egress.Ask:
			v.effect, v.rule, v.why, v.limits = r.do, r.name, ruled, r.limits
		}
	}
	if possible != nil && v.effect == egress.Allow {
		v.effect, v.rule, v.limits = egress.Ask, possible.name, tighter(v.limits, possible.limits)
	}
	return v
}
