package e2b

import (
	"bytes"
	"encoding/json"

	wire "github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// accessFields are fields of the /v1 API's access. E2B's API ignores unknown fields, and by default
// the internet is open. `{"level": "strict"}` must therefore be an error. Otherwise it would be
// accepted without an effect.
type accessFields struct {
	Access json.RawMessage `json:"access"`
	Level  json.RawMessage `json:"level"`
	Policy json.RawMessage `json:"policy"`
}

func isSet(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// rejectMisplaced returns an error for level or policy outside of the field access.
func (a accessFields) rejectMisplaced() error {
	for _, f := range []struct {
		name  string
		value json.RawMessage
	}{{"level", a.Level}, {"policy", a.Policy}} {
		if isSet(f.value) {
			return fault.Newf(fault.Invalid, "field_misplaced", "unknown field %q", f.name).
				WithHint(`put it into "access", such as {"access": {"level": "strict"}}`)
		}
	}
	return nil
}

// rejectAccess returns an error for any of these fields, in calls that cannot set the access.
func (a accessFields) rejectAccess(hint string) error {
	if isSet(a.Access) {
		return fault.New(fault.Invalid, "field_misplaced", `this call has no field "access"`).WithHint(hint)
	}
	return a.rejectMisplaced()
}

// parse parses the field access of create, with the meaning of /v1. The field is an extension of
// E2B's API. An unknown field in the object is an error, because the client may rely on it as
// a restriction.
func (a accessFields) parse() (sandbox.Access, error) {
	var in wire.Access
	d := json.NewDecoder(bytes.NewReader(a.Access))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return sandbox.Access{}, fault.Newf(fault.Invalid, "field_invalid", "the field %q is not an object of level, net, allow, policy and artifacts: %s", "access", err.Error())
	}
	return sandbox.Access{Level: in.Level, Net: sandbox.Net(in.Net), Allow: in.Allow}.With(in.Policy, in.Artifacts)
}

// access returns the access of the sandbox: the field access, or else E2B's own fields.
func (b newSandbox) access() (sandbox.Access, error) {
	var out egress
	if b.Network != nil {
		out = b.Network.egress
	}
	if !isSet(b.Access) {
		return out.access(b.AllowInternetAccess)
	}
	// Clients of the first generation send true with every create.
	closed := b.AllowInternetAccess != nil && !*b.AllowInternetAccess
	if closed || len(out.AllowOut)+len(out.DenyOut)+len(out.Rules) > 0 || out.EgressProxy != nil {
		return sandbox.Access{}, fault.New(fault.Invalid, "access_twice", `"access" excludes allow_internet_access: false and the egress fields of "network"`).
			WithHint(`use "access" only: net, allow and policy`)
	}
	return b.accessFields.parse()
}
