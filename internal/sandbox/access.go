package sandbox

import (
	"slices"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

// Net is the kind of network that a sandbox gets.
type Net string

// The kinds of networks. NetDefault stands for NetPolicy where the request names hosts or has a
// policy document with network rules, and for NetNone otherwise.
const (
	NetDefault Net = ""
	NetNone    Net = "none"   // no network attachment
	NetDev     Net = "dev"    // package registries, git forges, model APIs
	NetOpen    Net = "open"   // every public host; the built-in denials still apply
	NetPolicy  Net = "policy" // what the policy allows
)

// Access is the request for what a sandbox may reach and change. It is stored, so that the policy
// can be compiled again after a restart.
type Access struct {
	Level string   `json:"level,omitempty"`
	Net   Net      `json:"net,omitempty"`
	Allow []string `json:"allow,omitempty"`
	// Documents are policy documents of the sandbox itself. Each can only be stricter than the
	// layers above.
	Documents []policy.Document `json:"documents,omitempty"`
	// Lists are the network fields of E2B's API. They are converted into one of the documents.
	Lists *Lists `json:"lists,omitempty"`
	// Values are secret values for the documents' bindings that belong to this sandbox alone. They
	// are encrypted at once and never stored here. Own is the name under which the secret store has
	// them.
	Values map[string]config.Secret `json:"-"`
	Own    string                   `json:"own,omitempty"`
	// Within are the documents of the template. They limit the access: nothing beyond them is
	// allowed.
	Within []policy.Document `json:"within,omitempty"`
}

// Lists are the network fields of E2B's API as the client sent them, so that the API can return
// them. Rules contain no secret values here, because the secret store has those.
type Lists struct {
	AllowOut []string          `json:"allow_out,omitempty"`
	DenyOut  []string          `json:"deny_out,omitempty"`
	Rules    policy.Transforms `json:"rules,omitempty"`
}

// With returns the access with a caller's additions: a policy document, and globs of the only paths
// that may be exported from the workspace. Empty arguments are ignored.
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
		return len(a.Allow) > 0 || a.hasNetworkRules()
	case NetDev, NetOpen, NetPolicy:
	}
	return true
}

// hasNetworkRules reports whether one of the policy documents has network rules.
func (a Access) hasNetworkRules() bool {
	return slices.ContainsFunc(a.Documents, func(d policy.Document) bool {
		return len(d.Network.Hosts) > 0 || d.Network.Unlisted != "" || len(d.Git.Remotes) > 0
	})
}

// Resolved returns the access with NetDefault replaced by a concrete kind of network. A list of
// hosts without a network mode or a policy document with network rules allows only those hosts. In
// combination with either of them, the list adds hosts to what they allow.
func (a Access) Resolved() Access {
	if a.Net == NetDefault && len(a.Allow) > 0 && !a.hasNetworkRules() {
		a.Documents = append(slices.Clone(a.Documents), policy.None())
	}
	a.Net = a.Network()
	return a
}

// Network returns the kind of network that the request results in.
func (a Access) Network() Net {
	switch {
	case !a.Linked():
		return NetNone
	case a.Net == NetDefault:
		return NetPolicy
	}
	return a.Net
}

// Compile combines the documents as layers: the organisation's, the project's, and those of the
// request. The strictest level that any of them names applies.
func (a Access) Compile(settings Settings) (*policy.Policy, []policy.Warning, error) {
	task, err := a.Resolved().taskDocuments(settings.WithDefaults().Level)
	if err != nil {
		return nil, nil, err
	}
	var layers []policy.Layer
	if settings.Organisation != nil {
		layers = append(layers, policy.Layer{Kind: policy.LayerOrganisation, Document: *settings.Organisation})
	}
	for _, d := range a.Within {
		layers = append(layers, policy.Layer{Kind: policy.LayerOrganisation, Document: d})
	}
	if settings.Project != nil {
		layers = append(layers, policy.Layer{Kind: policy.LayerProject, Document: *settings.Project})
	}
	for _, d := range task {
		layers = append(layers, policy.Layer{Kind: policy.LayerTask, Document: d})
	}
	return policy.Compile(layers...)
}

// Closed returns the access without a network, for a running sandbox. The network attachment is
// part of the instance and stays, so all traffic must be denied explicitly: the network rules of
// the level might allow approval requests.
func (a Access) Closed() Access {
	out := Access{Level: a.Level, Net: NetPolicy, Documents: []policy.Document{policy.None()}, Within: a.Within}
	for _, d := range a.Documents {
		d.Network, d.Git.Remotes, d.Secrets.Bind = policy.Network{Unlisted: "deny"}, nil, nil
		out.Documents = append(out.Documents, d)
	}
	return out
}

// taskDocuments returns the documents of the request. A request that names no level gets the
// fallback level.
func (a Access) taskDocuments(fallback string) ([]policy.Document, error) {
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
			files, err := levelWithoutNetwork(fallback, d.Name)
			if err != nil {
				return nil, err
			}
			task = append(task, files)
		}
		named = named || d.Level != ""
		task = append(task, d)
	default:
		return nil, fault.Newf(fault.Invalid, "net_invalid", "there is no network %q", a.Net).
			WithHint("networks are none, dev, open and policy")
	}
	if a.Lists != nil && a.Level == "" {
		files, err := levelWithoutNetwork(fallback, "net/e2b")
		if err != nil {
			return nil, err
		}
		task = append(task, files)
	}
	if len(a.Allow) > 0 {
		d, err := policy.Hosts(a.Allow...)
		if err != nil {
			return nil, err
		}
		d.Network.Unlisted = "" // Resolved decides about other hosts
		task = append(task, d)
	}
	level := a.Level
	if !named {
		level = fallback
	}
	if level != "" {
		task = append(task, policy.Document{Policy: "v1", Name: "level", Level: level})
	}
	return append(task, a.Documents...), nil
}

// levelWithoutNetwork returns the rules of the fallback level except those for the network. A
// request for an open network must not get the loosest level for everything else.
func levelWithoutNetwork(fallback, name string) (policy.Document, error) {
	level, err := policy.Level(fallback)
	return policy.Document{
		Policy: "v1", Name: name + "-files", Isolation: level.Isolation, Filesystem: level.Filesystem, Redact: level.Redact,
	}, err
}
