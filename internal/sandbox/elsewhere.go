package sandbox

import (
	"slices"

	"github.com/crannog/crannog/internal/fault"
)

// OnHost tells whether a caller is at this machine as its user, and may name
// what is on it. A session of the web console sees as much, and sits wherever
// its browser is.
func (who Principal) OnHost() bool { return who.Local && who.Session == "" }

// checkReferences keeps a session of the web console from binding what is on
// this host. The sandbox is the local user's, whose references may name files
// and variables: whoever is signed in could have them sent anywhere. What the
// sandbox is bound to already, and to where, may stay.
func checkReferences(who Principal, next, before Access) error {
	if who.Session == "" {
		return nil // keys' references are refused where they are resolved
	}
	for _, d := range next.Documents {
		for _, b := range d.Secrets.Bind {
			if b.From == "" {
				continue
			}
			kept := func(e bound) bool { return e == bound{b.Name, b.From, b.Host, b.Port} }
			if !slices.ContainsFunc(boundIn(before), kept) {
				return fault.New(fault.Denied, "local_only", "the console binds secrets by their names, and nothing of the server's machine").
					WithHint("seal it: crannog secret set " + b.Name)
			}
		}
	}
	return nil
}

// bound is what a binding is of, and to where.
type bound struct {
	name, from, host string
	port             int
}

func boundIn(a Access) (list []bound) {
	for _, d := range a.Documents {
		for _, b := range d.Secrets.Bind {
			list = append(list, bound{b.Name, b.From, b.Host, b.Port})
		}
	}
	return list
}
