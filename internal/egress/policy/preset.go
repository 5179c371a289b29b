package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/egress"
)

// None returns a document that lists no hosts.
func None() Document {
	return Document{Policy: "v1", Name: "net/none", Network: Network{Unlisted: "deny"}}
}

// Dev returns a document that lists the hosts from which builds usually read, git forges, and the
// models that agents call.
func Dev() Document {
	return Document{Policy: "v1", Name: "net/dev", Network: Network{Unlisted: "deny", Hosts: devHosts()}}
}

// Open returns a document that allows all public hosts. Hosts that the floor denies stay denied
// (docs/reference/policy.md). In the task layer, the document cannot loosen the network settings of
// a stricter level. Code that supplies the level can set the level's Network to this document's.
func Open() Document {
	return Document{Policy: "v1", Name: "net/open", Level: "minimal", Network: Network{
		Unlisted: "allow", Writes: "rule", Tunnels: egress.Allow, WebSocket: egress.Allow,
	}}
}

// The hosts of Dev. Builds only read from those of devReads and devScoped. Those of devScoped also
// allow escaped slashes in paths, for npm's scoped names.
var (
	devReads = []string{
		"pypi.org", "files.pythonhosted.org", "proxy.golang.org", "sum.golang.org", "go.dev", "golang.org", "storage.googleapis.com",
		"index.crates.io", "static.crates.io", "crates.io", "static.rust-lang.org", "rubygems.org", "index.rubygems.org",
		"repo.maven.apache.org", "repo1.maven.org", "plugins.gradle.org", "services.gradle.org", "nodejs.org", "deb.nodesource.com",
		"raw.githubusercontent.com", "objects.githubusercontent.com", "release-assets.githubusercontent.com", "codeload.github.com", "api.github.com",
		"dl-cdn.alpinelinux.org", "cdn.jsdelivr.net",
	}
	devScoped = []string{"registry.npmjs.org", "registry.yarnpkg.com", "jsr.io", "npm.jsr.io"}
	// devPlain are package mirrors that may be read without TLS, because their packages are signed.
	devPlain = []string{"deb.debian.org", "security.debian.org", "archive.ubuntu.com", "security.ubuntu.com", "ports.ubuntu.com"}
	// devForges need a POST for a fetch. The git rules decide about pushes.
	devForges = []string{"github.com", "gitlab.com", "bitbucket.org", "codeberg.org"}
	devModels = []string{
		"api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com", "api.mistral.ai", "api.groq.com",
		"api.deepseek.com", "openrouter.ai", "api.together.xyz", "api.x.ai", "api.cohere.com",
	}
)

func devHosts() []Host {
	read := []Rule{{ID: "read", Methods: []string{"GET", "HEAD"}, Do: egress.Allow}}
	var out []Host
	for _, h := range devReads {
		out = append(out, Host{Host: h, Rules: read})
	}
	for _, h := range devScoped {
		out = append(out, Host{Host: h, EncodedSlash: true, Rules: []Rule{
			read[0],
			{ID: "audit", Methods: []string{"POST"}, Paths: []string{"/-/npm/v1/security/**"}, Do: egress.Allow},
		}})
	}
	for _, h := range devPlain {
		out = append(out, Host{Host: h, Ports: Ports{Port(80), Port(443)}, Rules: read})
	}
	for _, h := range devForges {
		out = append(out, Host{Host: h, Rules: []Rule{
			read[0],
			{ID: "git", Methods: []string{"POST"}, Paths: []string{"/**/git-upload-pack", "/**/git-receive-pack"}, Do: egress.Allow},
		}})
	}
	for _, h := range devModels {
		out = append(out, Host{Host: h, Rules: []Rule{{ID: "model", Methods: []string{"GET", "POST"}, Do: egress.Allow}}})
	}
	return out
}

// Hosts returns the document for --allow. Each entry is a host, "*." and a host, or an address,
// followed by a colon and the port if that is not 443. Nothing else is allowed.
func Hosts(allow ...string) (Document, error) {
	d := Document{Policy: "v1", Name: "net/hosts", Network: Network{Unlisted: "deny"}}
	for _, s := range allow {
		if err := d.add(s); err != nil {
			return Document{}, err
		}
	}
	return d, d.check(nil)
}

func (d *Document) add(s string) error {
	host, number := s, ""
	if _, err := prefix(s); err != nil {
		if at := strings.LastIndexByte(s, ':'); at >= 0 {
			host, number = strings.Trim(s[:at], "[]"), s[at+1:]
		}
	}
	one := Port(443)
	if number != "" || host != s {
		n, err := port(number)
		if err != nil {
			return invalid(strconv.Quote(clip(s)) + ": the port must be a number from 1 to 65535")
		}
		one = Port(n)
	}
	block := Host{Host: strings.ToLower(host), Rules: []Rule{{ID: "allow", Do: egress.Allow}}}
	if p, err := prefix(host); err == nil {
		block.Host, block.Addresses, block.Tunnel = "", []string{p.String()}, true
		if p.IsSingleIP() {
			block.Addresses[0] = p.Addr().String()
		}
	} else if err := checkPattern(block.Host); err != nil {
		return invalid(strconv.Quote(clip(s)) + ": " + err.Error())
	}
	for i := range d.Network.Hosts {
		h := &d.Network.Hosts[i]
		if h.Host == block.Host && slices.Equal(h.Addresses, block.Addresses) {
			if !h.Ports.has(one.First) {
				h.Ports = append(h.Ports, one)
			}
			return nil
		}
	}
	block.Ports = Ports{one}
	d.Network.Hosts = append(d.Network.Hosts, block)
	return nil
}

// Refuses reports whether a rule explicitly denies an address to which a name resolved, and returns
// that decision. It is called for each address before it is dialled, because an allowed name must
// not lead to a denied address.
func (p *Policy) Refuses(a netip.Addr, port int) (egress.Decision, bool) {
	q := lookup{host: a.Unmap().String(), addr: a.Unmap(), port: port, mode: opaque}
	for _, tables := range [][]*table{p.ceilings, p.grants} {
		for _, t := range tables {
			blocks, _ := t.find("", q.addr)
			b := on(blocks, port)
			if b == nil {
				continue
			}
			if v := b.verdict(&q); v.explicit {
				return p.decision(&q, v), true
			}
		}
	}
	return egress.Decision{}, false
}
