// Package agents owns the list of known agent programs: where a host has them, which parts of the
// host they need inside a sandbox, which hosts they contact and which secret is sent there. It
// starts nothing.
package agents

import (
	"slices"

	"github.com/crannog/crannog/internal/egress/policy"
)

// Agent is a program that people start by its name.
type Agent struct {
	Name    string // what people type
	Title   string
	Program string // the name of its file
	// Install is the command that installs the agent on a host. "" means that every system has it.
	Install string
	// InstallDirs are directories below the home directory where the program's own installer puts
	// it.
	InstallDirs []string
	// Env holds further variables for the sandbox, beside one for each secret.
	Env map[string]string
	// Keys are the secrets that it can use, the preferred one first.
	Keys []Key
	// Tools mounts the tools of version managers in the home directory, because the agent runs
	// compilers and tests.
	Tools bool
	// AllKeys gives the agent all of its keys that are stored, instead of the first one.
	AllKeys bool
	// Hosts are contacted without a key.
	Hosts []policy.Host
	// Files returns settings for which the program would otherwise ask a person, by their paths
	// relative to the home directory inside. placeholder is the value of the secret's variable
	// inside.
	Files func(secret, placeholder string) map[string]string
}

// Key is a secret and the only host to which it is sent.
type Key struct {
	Secret string // name of the stored secret, and of the variable inside
	Host   policy.Host
	Header string
	Format string // "" sends the value alone
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

// Usable returns the agent's keys that are stored: the preferred one, or all with AllKeys.
func (a Agent) Usable(stored func(secret string) bool) []Key {
	var usable []Key
	for _, k := range a.Keys {
		if stored(k.Secret) && (a.AllKeys || len(usable) == 0) {
			usable = append(usable, k)
		}
	}
	return usable
}
