package policy

import (
	"slices"

	"github.com/crannog/crannog/internal/egress"
)

// The values of settings, from the loosest to the strictest.
var (
	effects    = effectNames(egress.Effects)
	unlisteds  = []string{"allow", "read", "ask", "deny"}
	writes     = []string{"rule", "ask", "deny"}
	levels     = []string{"minimal", "light", "standard", "strict"}
	boundaries = []string{"none", "shared-kernel", "wasm-runtime", "userspace-kernel", "own-kernel"}
	modes      = []string{"bind", "overlay", "copy"}
	tracked    = []string{TrackedAllow, TrackedHide, TrackedDeny}
	tools      = []string{toolsAllow, "deny"}
	containers = []string{containersAllow, "deny"}
	approve    = []string{"never", "first_use", "each_task"}
)

func effectNames(effects []egress.Effect) []string {
	out := make([]string, 0, len(effects))
	for _, e := range effects {
		out = append(out, string(e))
	}
	return out
}

// What happens to a sandbox if git tracks some of its hidden files.
const (
	TrackedAllow = "allow" // it starts, and the history shows them
	TrackedHide  = "hide"  // it starts without the history, and so without git
	TrackedDeny  = "deny"  // it does not start
)

// toolsAllow allows mounting programs of version managers in the home directory.
const toolsAllow = "allow"

// containersAllow allows container engines in a sandbox whose request asks for them.
const containersAllow = "allow"

// setting is a value with the layer from which it comes.
type setting struct{ value, layer string }

// settings are the network's scalar settings, combined from all layers.
type settings struct {
	unlisted, writes, tunnels, webSocket  setting
	fetch, pushNew, pushDelete, pushForce setting
	publish                               setting
}

// merge applies one layer's value of a setting. It ignores a looser value than that of the layers
// above, and adds a warning.
func (s *setting) merge(l Layer, field, value string, from []string, warn func(field, text string)) {
	if value == "" {
		return
	}
	if s.value != "" && slices.Index(from, value) < slices.Index(from, s.value) {
		warn(field, value+" is looser than "+s.value+" of the "+s.layer+" layer, which counts")
		return
	}
	if value != s.value {
		*s = setting{value, l.Kind}
	}
}

func (s *settings) merge(l Layer, warn func(field, text string)) {
	n, g := l.Document.Network, l.Document.Git
	s.unlisted.merge(l, "network.unlisted", n.Unlisted, unlisteds, warn)
	s.writes.merge(l, "network.writes", n.Writes, writes, warn)
	s.tunnels.merge(l, "network.tunnels", string(n.Tunnels), effects, warn)
	s.webSocket.merge(l, "network.websocket", string(n.WebSocket), effects, warn)
	s.fetch.merge(l, "git.fetch", string(g.Fetch), effects, warn)
	s.pushNew.merge(l, "git.push.unlisted", string(g.Push.Unlisted), effects, warn)
	s.pushDelete.merge(l, "git.push.delete", string(g.Push.Delete), effects, warn)
	s.pushForce.merge(l, "git.push.force", string(g.Push.Force), effects, warn)
	s.publish.merge(l, "packages.publish", string(l.Document.Packages.Publish), effects, warn)
}
