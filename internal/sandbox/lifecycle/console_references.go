package lifecycle

import (
	"slices"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// checkReferences prevents web console sessions from binding files or variables of this host. The
// sandbox belongs to the local user, whose references may name any of them. An attacker with a
// session could have them sent to a host of his choice. Existing bindings may stay, with their
// destinations.
func checkReferences(caller sandbox.Principal, next, before sandbox.Access) error {
	if caller.Session == "" {
		return nil // the secret store rejects such references of keys
	}
	for _, d := range next.Documents {
		for _, b := range d.Secrets.Bind {
			if b.From == "" {
				continue
			}
			isSame := func(e binding) bool { return e == binding{b.Name, b.From, b.Host, b.Port} }
			if !slices.ContainsFunc(bindingsOf(before), isSame) {
				return fault.New(fault.Denied, "local_only", "a console session can bind stored secrets, but no files or variables of the server's machine").
					WithHint("store it as a secret: crannog secret set " + b.Name)
			}
		}
	}
	return nil
}

// binding is the source of a binding, and its destination.
type binding struct {
	name, from, host string
	port             int
}

func bindingsOf(a sandbox.Access) (list []binding) {
	for _, d := range a.Documents {
		for _, b := range d.Secrets.Bind {
			list = append(list, binding{b.Name, b.From, b.Host, b.Port})
		}
	}
	return list
}
