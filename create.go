package crannog

import (
	"time"

	"github.com/crannog/crannog/api"
)

// CreateOption sets a property of a new sandbox.
type CreateOption func(*api.CreateSandbox)

// Name gives the sandbox a name, unique among running ones.
func Name(name string) CreateOption { return func(r *api.CreateSandbox) { r.Name = name } }

// RequestID names this request in the server's queue, where Client.Queue shows
// it while it waits.
func RequestID(id string) CreateOption {
	return func(r *api.CreateSandbox) { r.RequestID = id }
}

// Template sets what the sandbox starts from: a template, or a snapshot by its
// ID or name.
func Template(ref string) CreateOption { return func(r *api.CreateSandbox) { r.Template = ref } }

// Image sets the OCI image that the sandbox starts from, in place of a template, such as
// python:3.12-slim. One that is not on the server's machine is pulled for callers there.
func Image(ref string) CreateOption { return func(r *api.CreateSandbox) { r.Image = ref } }

// Timeout is how long the sandbox lives unless told otherwise later.
func Timeout(d time.Duration) CreateOption {
	return func(r *api.CreateSandbox) { r.TimeoutSeconds = d.Seconds() }
}

// Forever makes a sandbox without an end. Local callers only.
func Forever() CreateOption { return func(r *api.CreateSandbox) { r.Forever = true } }

// Ephemeral ends the sandbox with the server's process. Local callers only.
func Ephemeral() CreateOption { return func(r *api.CreateSandbox) { r.Ephemeral = true } }

// Workspace shows a host directory at /workspace. What happens there stays
// inside: the host's files never change. Local callers only.
func Workspace(dir string) CreateOption { return func(r *api.CreateSandbox) { r.Workspace = dir } }

// Mount shows a file or a directory of the host's at a path inside, copy-on-write or
// read-only: the host's files never change. It may be given several times. Callers that
// are not local name a directory that the server shares.
func Mount(m api.Mount) CreateOption {
	return func(r *api.CreateSandbox) { r.Mounts = append(r.Mounts, m) }
}

// Programs shows files and directories of the host copy-on-write, at most four:
// the Nth is at /.crannog/programs/N if it is a directory, and otherwise at
// /.crannog/programs/file-N. Local callers only.
func Programs(paths ...string) CreateOption {
	return func(r *api.CreateSandbox) { r.Programs = paths }
}

// Tools shows what version managers have installed in the home of this machine's user, copy-on-write
// and without their credentials: pyenv, nvm, cargo and others by their names, or all for those that are
// there. Local callers only.
func Tools(managers ...string) CreateOption {
	return func(r *api.CreateSandbox) { r.Tools = managers }
}

// Metadata labels the sandbox.
func Metadata(m map[string]string) CreateOption {
	return func(r *api.CreateSandbox) { r.Metadata = m }
}

// Env is set for every command. It must be UTF-8; variables that need not be go with a Cmd.
func Env(env map[string]string) CreateOption { return func(r *api.CreateSandbox) { r.Env = env } }

// Limits bounds what the sandbox may use. A zero field is the server's
// default, never unlimited.
func Limits(l api.Limits) CreateOption { return func(r *api.CreateSandbox) { r.Limits = &l } }

// Engine sets what isolates the sandbox, by a name that Client.Engines lists. An
// engine whose boundary is weaker than the policy accepts is refused. Without this
// option the server chooses: its default if the policy accepts that, or else the
// engine with the weakest boundary that the policy accepts.
func Engine(name string) CreateOption { return func(r *api.CreateSandbox) { r.Engine = name } }

// PrivatePorts makes the ports of programs inside need the traffic token.
func PrivatePorts() CreateOption { return func(r *api.CreateSandbox) { r.PrivatePorts = true } }

// Level is what the policy is added to: strict, standard, light or minimal.
func Level(name string) CreateOption { return func(r *api.CreateSandbox) { access(r).Level = name } }

// Net is the network as a whole: none, dev, open or policy.
func Net(name string) CreateOption { return func(r *api.CreateSandbox) { access(r).Net = name } }

// Allow lists hosts that may be reached, as host or host:port. Without a
// network, a policy or hosts a sandbox reaches nothing.
func Allow(hosts ...string) CreateOption {
	return func(r *api.CreateSandbox) { access(r).Allow = append(access(r).Allow, hosts...) }
}

// Policy is a policy document in YAML.
func Policy(document string) CreateOption {
	return func(r *api.CreateSandbox) { access(r).Policy = document }
}

// Access is all of what the sandbox may reach and change at once.
func Access(a api.Access) CreateOption {
	return func(r *api.CreateSandbox) { *access(r) = a }
}

func access(r *api.CreateSandbox) *api.Access {
	if r.Access == nil {
		r.Access = &api.Access{}
	}
	return r.Access
}
