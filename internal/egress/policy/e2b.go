package policy

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
)

// Transforms are the headers to set on requests to a domain, by name. A value may contain
// ${e2b.secrets.NAME} once.
type Transforms map[string][]map[string]string

// Limits of transforms, the same as in E2B.
const (
	maxDomains    = 10
	maxHeaders    = 20
	longestHeader = 64
	longestValue  = 2048
)

// OwnPrefix is the prefix of the names of sealed values that belong to one sandbox. No secret of an
// owner can have such a name.
const OwnPrefix = "e2b.header."

// everything is ALL_TRAFFIC in E2B's clients.
const everything = "0.0.0.0/0"

// FromE2B converts the network fields of E2B's API to a document. In that API, absent fields mean
// unrestricted internet access. Headers with fixed values are returned as sealed values, because
// people put credentials there; the document binds each under its name. Errors have the texts that
// E2B clients expect.
func FromE2B(allowOut, denyOut []string, internet *bool, rules Transforms) (Document, []egress.Secret, error) {
	d := Document{Policy: "v1", Name: "net/e2b", Level: "minimal", Network: Network{Unlisted: "allow"}}
	denied, all, err := deniedPrefixes(denyOut)
	if err != nil {
		return Document{}, nil, err
	}
	if internet != nil && !*internet {
		all = true
	}
	names, allowed := allowedEntries(allowOut)
	if len(names) > 0 && !all {
		return Document{}, nil, wireError("When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic.")
	}
	n := &d.Network
	if all {
		// Denying everything includes the other denied entries.
		n.Unlisted, denied = "deny", nil
	}
	for _, name := range names {
		if err := checkPattern(name); err != nil {
			return Document{}, nil, wireError("invalid allowed domain " + clip(name) + ": " + err.Error())
		}
		n.Hosts = append(n.Hosts, Host{Host: name, Ports: Ports{Port(80), Port(443)}, Rules: []Rule{{ID: "allow", Do: egress.Allow}}})
	}
	if block := addressBlock(allowed); block != nil {
		block.Tunnel, block.Rules = true, []Rule{{ID: "allow", Do: egress.Allow}}
		n.Hosts = append(n.Hosts, *block)
	}
	// An entry in both lists is allowed, and so is an entry within an allowed one. The network
	// around an allowed entry is denied by its own prefix.
	denied = slices.DeleteFunc(denied, func(p netip.Prefix) bool {
		return slices.ContainsFunc(allowed, func(a netip.Prefix) bool { return a.Bits() <= p.Bits() && a.Overlaps(p) })
	})
	if block := addressBlock(denied); block != nil {
		block.Rules = []Rule{{ID: "deny", Do: egress.Deny}}
		n.Hosts = append(n.Hosts, *block)
	}
	fixed, err := d.transform(rules)
	if err != nil {
		return Document{}, nil, err
	}
	return d, fixed, d.check(nil)
}

func wireError(text string) *fault.Error {
	return fault.New(fault.Invalid, "invalid_network", text)
}

func addressBlock(list []netip.Prefix) *Host {
	if len(list) == 0 {
		return nil
	}
	h := &Host{Ports: Ports{AllPorts}}
	for _, p := range list {
		h.Addresses = append(h.Addresses, p.String())
	}
	return h
}

// wirePrefix parses an entry, and ignores bits below the mask.
func wirePrefix(s string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err == nil && !p.Addr().Is4In6()
}

func deniedPrefixes(entries []string) (list []netip.Prefix, all bool, err error) {
	for _, s := range entries {
		p, ok := wirePrefix(s)
		switch {
		case !ok:
			return nil, false, wireError("invalid denied CIDR " + clip(s))
		case p.String() == everything:
			all = true
		case !slices.Contains(list, p):
			list = append(list, p)
		}
	}
	return list, all, nil
}

func allowedEntries(entries []string) (names []string, list []netip.Prefix) {
	for _, s := range entries {
		if p, ok := wirePrefix(s); ok {
			if !slices.Contains(list, p) {
				list = append(list, p)
			}
		} else if s = strings.ToLower(s); !slices.Contains(names, s) {
			names = append(names, s)
		}
	}
	return names, list
}

// transform binds headers to domains.
func (d *Document) transform(rules Transforms) ([]egress.Secret, error) {
	if len(rules) > maxDomains {
		return nil, wireError("rules may have at most 10 domains")
	}
	var fixed []egress.Secret
	for _, domain := range slices.Sorted(maps.Keys(rules)) {
		host := strings.ToLower(domain)
		if !validName(host) {
			return nil, wireError("rules: " + clip(domain) + " is not an exact domain; headers go to one host only")
		}
		if len(rules[domain]) > 1 {
			return nil, wireError("rules: " + host + " may have at most one transform")
		}
		for _, headers := range rules[domain] {
			if len(headers) > maxHeaders {
				return nil, wireError("rules: " + host + " may have at most 20 headers")
			}
			for _, name := range slices.Sorted(maps.Keys(headers)) {
				value := headers[name]
				if len(name) > longestHeader || len(value) > longestValue {
					return nil, wireError("rules: a header's name has at most 64 and its value at most 2048 characters")
				}
				secret, format, err := placeholder(value)
				if err != nil {
					return nil, err
				}
				if secret != "" {
					d.Secrets.Bind = append(d.Secrets.Bind, Bind{Name: secret, Host: host, Header: name, Format: format})
					continue
				}
				c := &checker{}
				c.bind("rules", &Bind{Name: "fixed", Host: host, Header: name})
				if err := c.err(); err != nil || value == "" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
					return nil, wireError("rules: " + host + " cannot have the header " + clip(name) + " with this value")
				}
				secret = OwnPrefix + strconv.Itoa(len(fixed)+1)
				d.Secrets.Bind = append(d.Secrets.Bind, Bind{Name: secret, Host: host, Header: name})
				fixed = append(fixed, egress.Secret{Name: secret, Value: value, Generation: 1, Host: host, Port: 443, Header: name, Format: "{}"})
			}
		}
	}
	return fixed, nil
}

// placeholder finds the secret in a header's value.
func placeholder(value string) (secret, format string, err error) {
	const open = "${e2b."
	before, rest, found := strings.Cut(value, open)
	if !found {
		return "", "", nil
	}
	what, after, closed := strings.Cut(rest, "}")
	name, isSecret := strings.CutPrefix(what, "secrets.")
	switch {
	case !closed || strings.Contains(after, open):
		return "", "", wireError("rules: a header's value may hold one placeholder")
	case !isSecret:
		return "", "", fault.New(fault.Unsupported, "placeholder_unsupported", "rules: the only placeholder is ${e2b.secrets.NAME}")
	case strings.Contains(before+after, "{}"):
		return "", "", wireError("rules: a header's value with a placeholder cannot hold {}")
	}
	return name, before + "{}" + after, nil
}
