// Package agents owns what is known of agent programs by name: where they are
// on a host and what of it they need inside a sandbox, which hosts they speak
// to and which sealed secret goes there. It starts nothing.
package agents

import (
	"slices"

	"github.com/crannog/crannog/internal/egress/policy"
)

// Agent is one program that people start by its name.
type Agent struct {
	Name    string // what people type
	Title   string
	Program string // the name of its file
	// Install is a command that installs it on a host; "" is part of every
	// system.
	Install string
	// Places are directories below a home where its own installer puts it.
	Places []string
	// Env is set inside, beside one variable for each secret.
	Env map[string]string
	// Keys are the secrets that it can work with, the first choice first.
	Keys []Key
	// Tools shows it what version managers have installed in the home: it runs compilers and tests.
	Tools bool
	// AllKeys uses all keys that are there instead of the first.
	AllKeys bool
	// Hosts are reached without a key.
	Hosts []policy.Host
	// Files, below the home inside, answer in advance questions that no person inside can
	// answer. stand is the value of a secret's variable inside.
	Files func(secret, stand string) map[string]string
}

// Key is a secret and the only place where it goes.
type Key struct {
	Secret string // its name in the store, and of the variable inside
	Host   policy.Host
	Header string
	Format string // "" is the value alone
}

// Find returns the agent of a name.
func Find(name string) (Agent, bool) {
	all := All()
	if i := slices.IndexFunc(all, func(a Agent) bool { return a.Name == name }); i >= 0 {
		return all[i], true
	}
	return Agent{}, false
}

// Names lists the names of all agents.
func Names() []string {
	var names []string
	for _, a := range All() {
		names = append(names, a.Name)
	}
	return names
}

// Usable are the keys that an agent gets of those that are stored.
func (a Agent) Usable(stored func(secret string) bool) []Key {
	var have []Key
	for _, k := range a.Keys {
		if stored(k.Secret) && (a.AllKeys || len(have) == 0) {
			have = append(have, k)
		}
	}
	return have
}
