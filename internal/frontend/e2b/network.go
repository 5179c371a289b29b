package e2b

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Access changes and returns what a sandbox may reach.
type Access interface {
	SetAccess(ctx context.Context, caller sandbox.Principal, ref string, change func(sandbox.Access) (sandbox.Access, error)) (sandbox.Sandbox, error)
	Policy(ctx context.Context, caller sandbox.Principal, ref string) (*policy.Policy, error)
}

// egress contains the network fields of create and of the network call.
type egress struct {
	AllowOut    []string              `json:"allowOut"`
	DenyOut     []string              `json:"denyOut"`
	Rules       map[string][]ruleBody `json:"rules"`
	EgressProxy map[string]any        `json:"egressProxy"`
}

type ruleBody struct {
	Transform *transformBody `json:"transform,omitempty"`
}

type transformBody struct {
	Headers map[string]string `json:"headers,omitempty"`
}

// sealedPlaceholder is returned in place of a header's fixed value, which is secret.
const sealedPlaceholder = "[sealed]"

// secretPlaceholderPrefix is the prefix of placeholders for stored values.
const secretPlaceholderPrefix = "${e2b."

// access converts the API's network to an access. Without fields the internet is open. The built-in
// rules and the server's own policies apply in any case. The sandbox always has a network
// attachment, because a later call may open its network.
func (e egress) access(internet *bool) (sandbox.Access, error) {
	if e.EgressProxy != nil {
		return sandbox.Access{}, notSupported("an egress proxy")
	}
	given, shown, err := e.transforms()
	if err != nil {
		return sandbox.Access{}, err
	}
	document, fixed, err := policy.FromE2B(e.AllowOut, e.DenyOut, internet, given)
	if err != nil {
		return sandbox.Access{}, err
	}
	a := sandbox.Access{
		Net: sandbox.NetPolicy, Documents: []policy.Document{document},
		Lists: &sandbox.Lists{AllowOut: slices.Clone(e.AllowOut), DenyOut: slices.Clone(e.DenyOut), Rules: shown},
	}
	if len(fixed) > 0 {
		a.Values = make(map[string]config.Secret, len(fixed))
	}
	for _, s := range fixed {
		a.Values[s.Name] = config.Secret(s.Value)
	}
	return a, nil
}

// transforms returns the headers of the rules, and the same headers without secret values for
// display.
func (e egress) transforms() (given, shown policy.Transforms, err error) {
	if len(e.Rules) == 0 {
		return nil, nil, nil
	}
	given, shown = policy.Transforms{}, policy.Transforms{}
	for domain, rules := range e.Rules {
		given[domain], shown[domain] = nil, nil
		for _, rule := range rules {
			if rule.Transform == nil {
				continue
			}
			out := make(map[string]string, len(rule.Transform.Headers))
			for name, value := range rule.Transform.Headers {
				if value == sealedPlaceholder {
					// The client sent back a displayed placeholder, which would be used as the
					// header's value.
					return nil, nil, fault.New(fault.Invalid, "invalid_network", "rules: "+sealedPlaceholder+" is a placeholder for a hidden value").
						WithHint("send the header's value again, or store it as a secret and write ${e2b.secrets.NAME}")
				}
				out[name] = value
				if !strings.Contains(value, secretPlaceholderPrefix) {
					out[name] = sealedPlaceholder
				}
			}
			given[domain] = append(given[domain], rule.Transform.Headers)
			shown[domain] = append(shown[domain], out)
		}
	}
	return given, shown, nil
}

// setNetwork replaces the network access of a running sandbox. Absent fields are cleared.
func (a *api) setNetwork(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	var body struct {
		egress
		accessFields
		AllowInternetAccess *bool `json:"allow_internet_access"`
	}
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	if err := body.rejectAccess("PUT /v1/sandboxes/ID/access replaces it"); err != nil {
		return err
	}
	found, err := a.existing(r, caller)
	if err != nil {
		return err
	}
	if found.State != sandbox.Running {
		return alreadyPaused(found.ID)
	}
	next, err := body.access(body.AllowInternetAccess)
	if err != nil {
		return err
	}
	_, err = a.Access.SetAccess(r.Context(), caller, found.ID, func(before sandbox.Access) (sandbox.Access, error) {
		next.Level = before.Level
		return next, nil
	})
	if err != nil {
		return notFoundAs(err, found.ID)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// networkOf returns the present network access: whether every public host can be reached, and the
// lists as the client sent them.
func (a *api) networkOf(ctx context.Context, caller sandbox.Principal, s sandbox.Sandbox) (internet bool, body networkBody, err error) {
	body = networkBody{AllowPublicTraffic: s.TrafficToken == "", MaskRequestHost: s.MaskRequestHost}
	if l := s.Access.Lists; l != nil {
		body.AllowOut, body.DenyOut = l.AllowOut, l.DenyOut
		for domain, transforms := range l.Rules {
			if body.Rules == nil {
				body.Rules = map[string][]ruleBody{}
			}
			body.Rules[domain] = []ruleBody{}
			for _, headers := range transforms {
				body.Rules[domain] = append(body.Rules[domain], ruleBody{&transformBody{headers}})
			}
		}
	}
	if s.Access.Net == sandbox.NetNone || s.Unlinked {
		return false, body, nil
	}
	p, err := a.Access.Policy(ctx, caller, s.ID)
	if err != nil {
		return false, body, notFoundAs(err, s.ID)
	}
	return p.Document().Network.Unlisted == "allow", body, nil
}
