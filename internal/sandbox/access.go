package sandbox

import (
	"slices"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

// Net is how a sandbox is connected as a whole.
type Net string

// The kinds of networks. NetDefault is NetPolicy where something asks for a
// network, and NetNone otherwise.
const (
	NetDefault Net = ""
	NetNone    Net = "none"   // no link at all
	NetDev     Net = "dev"    // package registries, git forges, model APIs
	NetOpen    Net = "open"   // every public host; the floor still holds
	NetPolicy  Net = "policy" // what the policy says
)

// Access is what a sandbox may reach and change, as it was asked for. It is
// kept, so that the policy can be made again after a restart.
type Access struct {
	Level string   `json:"level,omitempty"`
	Net   Net      `json:"net,omitempty"`
	Allow []string `json:"allow,omitempty"`
	// Documents are the task's own, each of which can only be tighter than
	// the layers above.
	Documents []policy.Document `json:"documents,omitempty"`
	// Lists are what E2B's wire asked for, which its document is made of.
	Lists *Lists `json:"lists,omitempty"`
	// Values are those of the documents' bindings that belong to this sandbox
	// alone. They are sealed at once and never kept here; Own names them.
	Values map[string]config.Secret `json:"-"`
	Own    string                   `json:"own,omitempty"`
}

// Lists are the network fields of E2B's wire as they were given, to be shown
// again. Rules have no fixed values: those are sealed.
type Lists struct {
	AllowOut []string          `json:"allow_out,omitempty"`
	DenyOut  []string          `json:"deny_out,omitempty"`
	Rules    policy.Transforms `json:"rules,omitempty"`
}

// With adds what a caller wrote: a policy document, and globs of what alone may
// come out of the workspace. Neither is there if it is empty.
func (a Access) With(document string, artifacts []string) (Access, error) {
	a.Allow, a.Documents = slices.Clone(a.Allow), slices.Clone(a.Documents)
	if document != "" {
		d, err := policy.Parse([]byte(document))
		if err != nil {
			return a, err
		}
		a.Documents = append(a.Documents, d)
	}
	if len(artifacts) > 0 {
		d, err := policy.Artifacts(artifacts...)
		if err != nil {
			return a, err
		}
		a.Documents = append(a.Documents, d)
	}
	return a, nil
}

// Linked reports whether the sandbox gets a network attachment. Without one it has no
// network at all.
func (a Access) Linked() bool {
	switch a.Net {
	case NetNone:
		return false
	case NetDefault:
		return len(a.Allow) > 0 || a.documented()
	case NetDev, NetOpen, NetPolicy:
	}
	return true
}

// documented reports whether one of the policy documents has network rules.
func (a Access) documented() bool {
	return slices.ContainsFunc(a.Documents, func(d policy.Document) bool {
		return len(d.Network.Hosts) > 0 || d.Network.Unlisted != "" || len(d.Git.Remotes) > 0
	})
}

// Settled returns the access with NetDefault replaced by what it means. A list of
// hosts alone, without a network mode or a policy document with network rules, allows
// those hosts only. Beside either of them, the list adds to what that allows.
func (a Access) Settled() Access {
	if a.Net == NetDefault && len(a.Allow) > 0 && !a.documented() {
		a.Documents = append(slices.Clone(a.Documents), policy.None())
	}
	a.Net = a.Network()
	return a
}

// Network is the kind of network that the request comes to.
func (a Access) Network() Net {
	switch {
	case !a.Linked():
		return NetNone
	case a.Net == NetDefault:
		return NetPolicy
	}
	return a.Net
}

// Compile lays the documents over each other: the organisation's, the
// project's, and what the task asks for. The strictest level that any of them
// names counts.
func (a Access) Compile(settings Settings) (*policy.Policy, []policy.Warning, error) {
	task, err := a.Settled().task(settings.WithDefaults().Level)
	if err != nil {
		return nil, nil, err
	}
	var layers []policy.Layer
	if settings.Organisation != nil {
		layers = append(layers, policy.Layer{Kind: policy.LayerOrganisation, Document: *settings.Organisation})
	}
	if settings.Project != nil {
		layers = append(layers, policy.Layer{Kind: policy.LayerProject, Document: *settings.Project})
	}
	for _, d := range task {
		layers = append(layers, policy.Layer{Kind: policy.LayerTask, Document: d})
	}
	return policy.Compile(layers...)
}

// Closed is what is left of an access whose network is taken away while the
// sandbox runs. Its link is part of its machine and stays, so everything that
// could pass it goes: a level's own network may let people be asked.
func (a Access) Closed() Access {
	out := Access{Level: a.Level, Net: NetPolicy, Documents: []policy.Document{policy.None()}}
	for _, d := range a.Documents {
		d.Network, d.Git.Remotes, d.Secrets.Bind = policy.Network{Unlisted: "deny"}, nil, nil
		out.Documents = append(out.Documents, d)
	}
	return out
}

// task are the documents of what was asked for.
func (a Access) task(usual string) ([]policy.Document, error) {
	named := a.Level != "" || slices.ContainsFunc(a.Documents, func(d policy.Document) bool { return d.Level != "" })
	var task []policy.Document
	switch a.Net {
	case NetDefault, NetNone, NetPolicy:
		if !a.Linked() {
			task = append(task, policy.None())
		}
	case NetDev, NetOpen:
		d := policy.Dev()
		if a.Net == NetOpen {
			d = policy.Open()
		}
		if a.Net == NetOpen && !named {
			rest, err := butNetwork(usual, d.Name)
			if err != nil {
				return nil, err
			}
			task = append(task, rest)
		}
		named = named || d.Level != ""
		task = append(task, d)
	default:
		return nil, fault.Newf(fault.Invalid, "net_invalid", "there is no network %q", a.Net).
			WithHint("networks are none, dev, open and policy")
	}
	if a.Lists != nil && a.Level == "" {
		rest, err := butNetwork(usual, "net/e2b")
		if err != nil {
			return nil, err
		}
		task = append(task, rest)
	}
	if len(a.Allow) > 0 {
		d, err := policy.Hosts(a.Allow...)
		if err != nil {
			return nil, err
		}
		d.Network.Unlisted = "" // what settled said
		task = append(task, d)
	}
	level := a.Level
	if !named {
		level = usual
	}
	if level != "" {
		task = append(task, policy.Document{Policy: "v1", Name: "level", Level: level})
	}
	return append(task, a.Documents...), nil
}

// butNetwork is what the usual level says of all but the network: who asks for
// an open network has not asked for the loosest of everything else.
func butNetwork(usual, name string) (policy.Document, error) {
	level, err := policy.Level(usual)
	return policy.Document{
		Policy: "v1", Name: name + "-files", Isolation: level.Isolation, Filesystem: level.Filesystem, Redact: level.Redact,
	}, err
}
