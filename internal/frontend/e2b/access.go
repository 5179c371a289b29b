package e2b

import (
	"bytes"
	"encoding/json"

	wire "github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// accessWords are what a caller writes who knows our own API. This wire
// ignores fields that it does not know, and without a word the internet is
// open: `{"level": "strict"}` must not succeed and give the opposite.
type accessWords struct {
	Access json.RawMessage `json:"access"`
	Level  json.RawMessage `json:"level"`
	Policy json.RawMessage `json:"policy"`
}

func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// refuseBare refuses words that belong into access.
func (a accessWords) refuseBare() error {
	for _, f := range []struct {
		name  string
		value json.RawMessage
	}{{"level", a.Level}, {"policy", a.Policy}} {
		if given(f.value) {
			return fault.Newf(fault.Invalid, "field_misplaced", "there is no field %q here", f.name).
				WithHint(`create takes it in "access", such as {"access": {"level": "strict"}}`)
		}
	}
	return nil
}

// refuseAll refuses them where a sandbox has its access already.
func (a accessWords) refuseAll(hint string) error {
	if given(a.Access) {
		return fault.New(fault.Invalid, "field_misplaced", `there is no field "access" here`).WithHint(hint)
	}
	return a.refuseBare()
}

// parse reads the access of create, which means what it means in /v1. It is
// ours alone, so that a word in it that means nothing is a mistake, and one
// that would be less than what its author believes to have.
func (a accessWords) parse() (sandbox.Access, error) {
	var in wire.Access
	d := json.NewDecoder(bytes.NewReader(a.Access))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return sandbox.Access{}, fault.Newf(fault.Invalid, "field_invalid", "the field %q is not an object of level, net, allow, policy and artifacts: %s", "access", err.Error())
	}
	return sandbox.Access{Level: in.Level, Net: sandbox.Net(in.Net), Allow: in.Allow}.With(in.Policy, in.Artifacts)
}

// access is what the sandbox may reach and change: what `access` says, or else
// what this wire's own fields come to.
func (b newSandbox) access() (sandbox.Access, error) {
	var out egress
	if b.Network != nil {
		out = b.Network.egress
	}
	if !given(b.Access) {
		return out.access(b.AllowInternetAccess)
	}
	// Clients of the first generation send true with every create.
	closed := b.AllowInternetAccess != nil && !*b.AllowInternetAccess
	if closed || len(out.AllowOut)+len(out.DenyOut)+len(out.Rules) > 0 || out.EgressProxy != nil {
		return sandbox.Access{}, fault.New(fault.Invalid, "access_twice", `"access" excludes allow_internet_access: false and what "network" says of the way out`).
			WithHint(`say it all in "access": net, allow and policy`)
	}
	return b.accessWords.parse()
}
