package policy

import (
	"strings"

	"github.com/crannog/crannog/internal/egress"
)

// Pushes and publications are recognised by their protocol, which is visible only in a decrypted
// connection. Connections to these hosts are decrypted if either is restricted. Connections to
// other hosts are decrypted if the hosts are listed under git.remotes or in a rule with methods.
var (
	forges     = []string{"github.com", "gitlab.com", "bitbucket.org", "codeberg.org", "gitea.com", "sr.ht", "dev.azure.com", "visualstudio.com", "huggingface.co"}
	registries = []string{"npmjs.org", "npmjs.com", "yarnpkg.com", "pypi.org", "crates.io", "rubygems.org", "docker.io", "docker.com", "ghcr.io", "quay.io", "gcr.io", "pkg.dev", "github.com", "amazonaws.com", "azurecr.io", "jsr.io", "nuget.org", "packagist.org", "hex.pm"}
)

// guarded reports whether connections to a host must be inspected for pushes, publications or
// packages.
func (p *Policy) guarded(host string) bool {
	if p.remotes[host] {
		return true
	}
	if _, ok := p.Registry(host); ok {
		return true
	}
	s := &p.settings
	if (s.fetch.value != "allow" || s.pushNew.value != "allow" || s.pushDelete.value != "allow" || s.pushForce.value != "allow") && below(host, forges) {
		return true
	}
	return s.publish.value != "allow" && below(host, registries)
}

// PushRequest is one ref of a push.
type PushRequest struct {
	Host   string // canonical
	Repo   string // its path, without a leading slash and without .git at the end
	Ref    string // in full: refs/heads/main
	Delete bool
	// Force is set if the old tip is not an ancestor of the new one, or if that is unknown.
	Force bool
}

// Push decides about one ref of a push. If a push changes several refs, the strictest decision
// applies.
func (p *Policy) Push(r PushRequest) egress.Decision {
	d := p.remote(r.Host, r.Repo, RulePush+".unlisted", p.settings.pushNew, func(m Remote) bool {
		for _, g := range m.Push {
			if newGlob(g).match(r.Ref, false) {
				return true
			}
		}
		return false
	}, p.top.pushNew)
	if r.Delete {
		d = p.stricter(d, p.settings.pushDelete, RulePush+".delete")
	}
	if r.Force {
		d = p.stricter(d, p.settings.pushForce, RulePush+".force")
	}
	return p.explain(d, "push to "+clip(r.Ref)+" of "+clip(r.Host+"/"+r.Repo))
}

// Fetch decides about a clone or a fetch.
func (p *Policy) Fetch(host, repo string) egress.Decision {
	d := p.remote(host, repo, RuleFetch, p.settings.fetch, func(Remote) bool { return true }, p.top.fetch)
	return p.explain(d, "fetch from "+clip(host+"/"+repo))
}

// ListsRemote reports whether a decision of Push or Fetch comes from an entry of git.remotes, and
// not from a setting for all other remotes.
func ListsRemote(d egress.Decision) bool {
	return d.Effect == egress.Allow && strings.HasPrefix(d.Rule, remotesPrefix)
}

// remotesPrefix is the prefix of the names of rules that are entries of git.remotes.
const remotesPrefix = "git.remotes:"

// Publish decides about the publication of a package, an image or a release.
func (p *Policy) Publish(host string) egress.Decision {
	d := p.setting(p.settings.publish, RulePublish)
	return p.explain(d, "publish to "+clip(host))
}

// remote combines the remotes of the layers. If the organisation lists any, they are a ceiling: its
// own setting for unlisted remotes limits all others.
func (p *Policy) remote(host, repo, name string, other setting, covers func(Remote) bool, top setting) egress.Decision {
	repo = strings.TrimSuffix(strings.Trim(repo, "/"), ".git")
	out := p.setting(other, name)
	ceiling, capped := out, false
	listed := false
	for _, l := range p.layers {
		hit := false
		for _, r := range l.Document.Git.Remotes {
			if r.Host == host && newGlob(r.Repo).match(repo, false) && covers(r) {
				hit = true
			}
		}
		if l.Kind == LayerOrganisation && len(l.Document.Git.Remotes) > 0 && !hit {
			ceiling, capped = p.setting(top, name), true
		}
		if hit && !listed {
			out, listed = egress.Decision{Effect: egress.Allow, Rule: remotesPrefix + host + "/" + repo, Layer: l.Kind, Policy: p.digest}, true
		}
	}
	if capped && ceiling.Effect.Stricter(out.Effect) {
		return ceiling
	}
	return out
}

func (p *Policy) setting(s setting, rule string) egress.Decision {
	d := egress.Decision{Effect: egress.Effect(s.value), Rule: rule, Layer: s.layer, Policy: p.digest}
	if d.Effect.Strictness() == egress.Deny.Strictness() {
		d.Effect = egress.Deny
	}
	return d
}

func (p *Policy) stricter(d egress.Decision, s setting, rule string) egress.Decision {
	if o := p.setting(s, rule); o.Effect.Stricter(d.Effect) {
		return o
	}
	return d
}

func (p *Policy) explain(d egress.Decision, what string) egress.Decision {
	switch d.Effect {
	case egress.Allow:
	case egress.Ask:
		d.Reason, d.Fix = d.Rule+" of the "+d.Layer+" layer asks about this "+what+".", "crannog approve"
	default:
		d.Reason = d.Rule + " of the " + d.Layer + " layer denies this " + what + "."
		if d.Layer == LayerLevel {
			d.Fix = "--level " + p.loosened(d.Rule)
		}
	}
	return d
}
