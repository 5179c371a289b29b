package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/egress"
)

// stores are hosts where anyone with an account can read data that others store. A sandbox that may
// write there can send any data to anyone.
var stores = []string{
	"github.com", "api.github.com", "gist.github.com", "uploads.github.com", "gitlab.com", "bitbucket.org", "codeberg.org", "huggingface.co",
	"s3.amazonaws.com", "amazonaws.com", "storage.googleapis.com", "blob.core.windows.net", "r2.cloudflarestorage.com", "digitaloceanspaces.com", "backblazeb2.com",
	"drive.google.com", "docs.google.com", "dropbox.com", "dropboxapi.com", "onedrive.live.com", "graph.microsoft.com",
	"pastebin.com", "hastebin.com", "ix.io", "0x0.st", "transfer.sh", "file.io", "paste.rs", "dpaste.com", "rentry.co",
	"hooks.slack.com", "slack.com", "discord.com", "api.telegram.org", "webhook.site", "requestbin.com", "pipedream.net", "ngrok.io", "ngrok-free.app", "trycloudflare.com",
}

// warnings returns warnings about valid settings that may be a mistake.
func (l Layer) warnings() []Warning {
	var out []Warning
	for i, h := range l.Document.Network.Hosts {
		field := "network.hosts[" + strconv.Itoa(i) + "]"
		warn := func(text string) { out = append(out, Warning{Layer: l.Kind, Field: field, Text: text}) }
		if sharedSuffix(h.Host) && h.opens() {
			warn(h.Host + " covers names that its provider gives to anybody")
		}
		if name := strings.TrimPrefix(h.Host, "*."); below(name, stores) && h.storesFreely() {
			warn(h.Host + " stores data for anyone, and no rule limits the paths that may be written to: all data of the sandbox can leave through it")
		}
		for _, a := range h.Addresses {
			if p, err := prefix(a); err == nil && private(p) && h.opens() && len(h.CIDRs) == 0 {
				warn(a + " is private, and not reachable without an entry in cidrs")
			}
		}
		if len(h.Rules) == 0 {
			warn(h.title() + " has no rules, so all of it is denied")
		}
	}
	return out
}

func (h *Host) opens() bool {
	return slices.ContainsFunc(h.Rules, func(r Rule) bool { return r.Do != egress.Deny })
}

// storesFreely reports whether a rule allows writing to any path.
func (h *Host) storesFreely() bool {
	return slices.ContainsFunc(h.Rules, func(r Rule) bool {
		reads := len(r.Methods) > 0 && !slices.ContainsFunc(r.Methods, func(m string) bool { return m != "GET" && m != "HEAD" })
		return r.Do == egress.Allow && !reads && coversAll(r.Paths, nil)
	})
}

func private(p netip.Prefix) bool { return p.Addr().IsPrivate() }
