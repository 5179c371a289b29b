package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Widen lists for the approver, in a few words each, what a new policy may allow that the old one
// does not. It compares the documents instead of all possible requests, so it may list changes
// without effect. If the list is empty, the new policy is certainly not wider.
func Widen(before, after *Policy) []string {
	w := &widening{}
	w.settings(&before.merged, &after.merged)
	w.files(&before.merged.Filesystem, &after.merged.Filesystem)
	w.installs(&before.installs, &after.installs)
	for _, o := range before.export.only {
		// Each layer's list restricts separately, so each must still exist.
		if !slices.ContainsFunc(after.export.only, func(n onlyGlobs) bool { return coversAll(o.patterns, n.patterns) }) {
			w.add("%s: more than %s comes out", RuleOnly, strings.Join(o.patterns, " "))
		}
	}
	for _, kind := range []string{LayerOrganisation, LayerProject, LayerTask} {
		w.layers(kind, after, documentsOf(before, kind), documentsOf(after, kind))
	}
	if before.granting && !after.granting && len(after.ceilings) > 0 {
		w.add("the organisation's hosts are no longer narrowed by a project or a task")
	}
	if after.top.unlisted.value != before.top.unlisted.value && len(before.ceilings) > 0 {
		w.word("the organisation's network.unlisted", before.top.unlisted.value, after.top.unlisted.value, unlisteds)
	}
	w.code(before, after)
	return w.found
}

func documentsOf(p *Policy, kind string) (out []Document) {
	for _, l := range p.layers {
		if l.Kind == kind {
			out = append(out, l.Document)
		}
	}
	return out
}

type widening struct{ found []string }

func (w *widening) add(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(w.found, s) {
		w.found = append(w.found, s)
	}
}

func (w *widening) word(field, old, now string, from []string) {
	if slices.Index(from, now) < slices.Index(from, old) {
		w.add("%s: %s becomes %s", field, old, now)
	}
}

func (w *widening) settings(a, b *Document) {
	w.word("isolation.at_least", a.Isolation.AtLeast, b.Isolation.AtLeast, boundaries)
	w.word("isolation.containers", a.Isolation.Containers, b.Isolation.Containers, containers)
	w.word("network.unlisted", a.Network.Unlisted, b.Network.Unlisted, unlisteds)
	w.word("network.writes", a.Network.Writes, b.Network.Writes, writes)
	for _, s := range []struct {
		field    string
		old, now any
	}{
		{"network.tunnels", a.Network.Tunnels, b.Network.Tunnels}, {"network.websocket", a.Network.WebSocket, b.Network.WebSocket},
		{"git.fetch", a.Git.Fetch, b.Git.Fetch}, {"git.push.unlisted", a.Git.Push.Unlisted, b.Git.Push.Unlisted},
		{"git.push.delete", a.Git.Push.Delete, b.Git.Push.Delete}, {"git.push.force", a.Git.Push.Force, b.Git.Push.Force},
		{"packages.publish", a.Packages.Publish, b.Packages.Publish},
	} {
		w.word(s.field, fmt.Sprint(s.old), fmt.Sprint(s.now), effects)
	}
	w.word("secrets.approve", a.Secrets.Approve, b.Secrets.Approve, approve)
	if b.Secrets.MaxTTL > a.Secrets.MaxTTL {
		w.add("secrets.max_ttl: %s becomes %s", a.Secrets.MaxTTL, b.Secrets.MaxTTL)
	}
	if b.Approvals.Quorum < a.Approvals.Quorum {
		w.add("approvals.quorum: %d becomes %d", a.Approvals.Quorum, b.Approvals.Quorum)
	}
	if b.Approvals.Timeout > a.Approvals.Timeout {
		w.add("approvals.timeout: %s becomes %s", a.Approvals.Timeout, b.Approvals.Timeout)
	}
	if set(a.Redact.Outputs) && !set(b.Redact.Outputs) || set(a.Redact.Patterns) && !set(b.Redact.Patterns) {
		w.add("redact: less is redacted")
	}
	for _, x := range b.Secrets.Bind {
		if !slices.ContainsFunc(a.Secrets.Bind, func(y Bind) bool { return fmt.Sprint(x) == fmt.Sprint(y) }) {
			w.add("secrets.bind: %s goes to %s:%d", x.Name, x.Host, x.Port)
		}
	}
}

func (w *widening) files(a, b *Filesystem) {
	w.word("filesystem.workspace.mode", a.Workspace.Mode, b.Workspace.Mode, modes)
	if set(b.Workspace.Writable) && !set(a.Workspace.Writable) {
		w.add("filesystem.workspace: becomes writable")
	}
	w.word("filesystem.tracked", a.Tracked, b.Tracked, tracked)
	w.word("filesystem.tools", a.Tools, b.Tools, tools)
	w.word("filesystem.export.do", string(a.Export.Do), string(b.Export.Do), effects)
	w.word("filesystem.export.deletions", string(a.Export.Deletions), string(b.Export.Deletions), effects)
	for _, l := range []struct {
		field    string
		old, now []string
	}{{"read", a.Read, b.Read}, {"write", a.Write, b.Write}} {
		for _, p := range l.now {
			if !slices.ContainsFunc(l.old, func(o string) bool { return under(p, o) }) {
				w.add("filesystem.%s: %s", l.field, p)
			}
		}
	}
	for _, l := range []struct {
		field    string
		old, now []string
	}{{"deny", a.Deny, b.Deny}, {"protect", a.Protect, b.Protect}, {"read_only", a.ReadOnly, b.ReadOnly}} {
		for _, g := range l.old {
			if !slices.Contains(l.now, g) {
				w.add("filesystem.%s: %s was removed", l.field, g)
			}
		}
	}
}

// layers compares the hosts of all layers of one kind, one by one.
func (w *widening) layers(kind string, after *Policy, a, b []Document) {
	hasNetwork := func(d Document) bool { return len(d.Network.Hosts) > 0 || d.Network.Unlisted != "" }
	for i := range max(len(a), len(b)) {
		var x, y Document
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if kind == LayerOrganisation && hasNetwork(x) && !hasNetwork(y) {
			w.add("the organisation is not a ceiling any more")
		}
		w.hosts(kind, after, x.Network.Hosts, y.Network.Hosts)
	}
}

func (w *widening) hosts(kind string, after *Policy, a, b []Host) {
	key := func(h Host) string { return h.Host + " " + strings.Join(h.Addresses, " ") }
	for _, now := range b {
		if !slices.ContainsFunc(a, func(old Host) bool { return key(old) == key(now) && narrows(now, old) }) && (now.opens() || now.hides(a)) {
			w.add("network.hosts: %s %v is new or wider", now.title(), now.ports())
		}
	}
	for _, old := range a {
		same := func(now Host) bool { return key(old) == key(now) }
		kept := slices.ContainsFunc(b, func(now Host) bool { return same(now) && coversPorts(now.ports(), old.ports()) })
		// Ports that the new block omits stay denied, unless another layer allows them.
		shrunk := slices.ContainsFunc(b, same) && old.Host != "" && (kind == LayerOrganisation || len(after.grants) < 2)
		// Other blocks may now decide about names that the wildcard denied.
		hidden := old.restrains() && (old.Host == "" || old.Host[0] == '*')
		if !kept && !shrunk && (hidden || after.covered(kind, old)) {
			w.add("network.hosts: %s %v was removed, and something wider decides instead", old.title(), old.ports())
		}
	}
}

// covered reports whether anything in the policy could allow what a removed block decided about.
func (p *Policy) covered(kind string, gone Host) bool {
	if p.settings.unlisted.value != "deny" || kind == LayerOrganisation && p.top.unlisted.value != "deny" {
		return true
	}
	var a netip.Addr
	for _, tables := range [][]*table{p.ceilings, p.grants} {
		for _, t := range tables {
			if gone.Host == "" && len(t.prefixes) > 0 {
				return true
			}
			if blocks, _ := t.find(gone.Host, a); blocks != nil {
				return true
			}
		}
	}
	return false
}

// restrains reports whether a block has rules that deny or ask.
func (h Host) restrains() bool {
	return slices.ContainsFunc(h.Rules, func(r Rule) bool { return r.Do.Strictness() > 0 })
}

// hides reports whether a block takes precedence over a block in list that denies or asks.
func (h Host) hides(list []Host) bool {
	return slices.ContainsFunc(list, func(o Host) bool {
		suffix, wild := strings.CutPrefix(o.Host, "*")
		below := wild && strings.HasSuffix(h.Host, suffix) || h.Host == "" && o.Host == "" || h.Host == o.Host
		return below && o.restrains()
	})
}

// coversPorts reports whether each range of narrow is within a range of wide.
func coversPorts(wide, narrow Ports) bool {
	for _, n := range narrow {
		if !slices.ContainsFunc(wide, func(r PortRange) bool { return r.First <= n.First && n.Last <= r.Last }) {
			return false
		}
	}
	return true
}

// narrows reports whether a block is certainly no wider than the one it replaces.
func narrows(now, old Host) bool {
	if !coversPorts(old.ports(), now.ports()) || now.Tunnel != old.Tunnel || now.EncodedSlash && !old.EncodedSlash ||
		old.WebSocket.Stricter(now.WebSocket) && old.WebSocket != "" || old.WebSocket != "" && now.WebSocket == "" ||
		now.Approval.Quorum < old.Approval.Quorum || now.Approval.Timeout > old.Approval.Timeout || now.Approval.Timeout == 0 && old.Approval.Timeout != 0 {
		return false
	}
	for _, c := range now.CIDRs {
		if !slices.Contains(old.CIDRs, c) {
			return false
		}
	}
	for _, r := range now.Rules {
		if r.Do.Strictness() < 2 && !slices.ContainsFunc(old.Rules, func(o Rule) bool {
			return o.Do.Strictness() <= r.Do.Strictness() && coversMethods(o.Methods, r.Methods) && coversAll(o.Paths, r.Paths) && noLooser(r.Limits, o.Limits)
		}) {
			return false
		}
	}
	for _, o := range old.Rules {
		if o.Do.Strictness() > 0 && !slices.ContainsFunc(now.Rules, func(r Rule) bool {
			return r.Do.Strictness() >= o.Do.Strictness() && coversMethods(r.Methods, o.Methods) && coversAll(r.Paths, o.Paths) && noLooser(r.Limits, o.Limits)
		}) {
			return false
		}
	}
	return true
}

// noLooser reports whether the new limits are no looser than the old ones.
func noLooser(now, old RuleLimits) bool {
	return now == old || tighter(old.limits(""), now.limits("")) == now.limits("")
}

func (w *widening) code(before, after *Policy) {
	for _, l := range after.layers {
		for _, r := range l.Document.Git.Remotes {
			if !slices.ContainsFunc(before.layers, func(o Layer) bool {
				return o.Kind == l.Kind && slices.ContainsFunc(o.Document.Git.Remotes, func(x Remote) bool {
					return x.Host == r.Host && covers(x.Repo, r.Repo) && (len(r.Push) == 0 || coversAllOf(x.Push, r.Push))
				})
			}) {
				w.add("git.remotes: %s/%s", r.Host, r.Repo)
			}
		}
	}
	ceiling := func(p *Policy) bool {
		return slices.ContainsFunc(documentsOf(p, LayerOrganisation), func(d Document) bool { return len(d.Git.Remotes) > 0 })
	}
	if ceiling(before) && !ceiling(after) {
		w.add("git.remotes: the organisation is not a ceiling any more")
	}
	w.word("the organisation's git.fetch", before.top.fetch.value, after.top.fetch.value, effects)
	w.word("the organisation's git.push.unlisted", before.top.pushNew.value, after.top.pushNew.value, effects)
}

func coversAllOf(wide, narrow []string) bool {
	return len(wide) > 0 && coversAll(wide, narrow)
}

func set(b *bool) bool { return b != nil && *b }
