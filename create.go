package crannog

import (
	"time"

	"github.com/crannog/crannog/api"
)

// CreateOption sets a property of a new sandbox.
type CreateOption func(*api.CreateSandbox)

// Name sets the name of the sandbox, which is unique among running ones.
func Name(name string) CreateOption { return func(r *api.CreateSandbox) { r.Name = name } }

// RequestID names this request. Client.Queue shows the name while the request waits.
func RequestID(id string) CreateOption {
	return func(r *api.CreateSandbox) { r.RequestID = id }
}

// Template sets the starting point of the sandbox: a template, or a snapshot by its ID or name.
func Template(ref string) CreateOption { return func(r *api.CreateSandbox) { r.Template = ref } }

// Image sets the OCI image from which the sandbox starts, in place of a template, such as
// python:3.12-slim. For callers on the server's machine, a missing image is pulled.
func Image(ref string) CreateOption { return func(r *api.CreateSandbox) { r.Image = ref } }

// Timeout sets the time after which the sandbox ends.
func Timeout(d time.Duration) CreateOption {
	return func(r *api.CreateSandbox) { r.TimeoutSeconds = d.Seconds() }
}

// Forever creates a sandbox that never ends by itself. Local callers only.
func Forever() CreateOption { return func(r *api.CreateSandbox) { r.Forever = true } }

// Ephemeral ends the sandbox with the server's process. Local callers only.
func Ephemeral() CreateOption { return func(r *api.CreateSandbox) { r.Ephemeral = true } }

// Workspace makes a host directory visible at /workspace, copy-on-write: the host's
// files never change. Local callers only.
func Workspace(dir string) CreateOption { return func(r *api.CreateSandbox) { r.Workspace = dir } }

// Mount makes a file or a directory of the host visible at a path inside, copy-on-write or
// read-only: the host's files never change. It may be given several times. For callers that
// are not local, the source is the name of a directory that the server shares.
func Mount(m api.Mount) CreateOption {
	return func(r *api.CreateSandbox) { r.Mounts = append(r.Mounts, m) }
}

// Programs makes files and directories of the host visible copy-on-write, at most four:
// the Nth is at /.crannog/programs/N if it is a directory, and otherwise at
// /.crannog/programs/file-N. Local callers only.
func Programs(paths ...string) CreateOption {
	return func(r *api.CreateSandbox) { r.Programs = paths }
}

// Tools makes the programs of version managers in the home of this machine's user visible,
// copy-on-write and without credentials: pyenv, nvm, cargo and others by name, or all installed
// ones with "all". Local callers only.
func Tools(managers ...string) CreateOption {
	return func(r *api.CreateSandbox) { r.Tools = managers }
}

// Metadata sets labels of the sandbox.
func Metadata(m map[string]string) CreateOption {
	return func(r *api.CreateSandbox) { r.Metadata = m }
}

// Env sets environment variables of every command. They must be UTF-8; the variables of a Cmd need
// not be.
func Env(env map[string]string) CreateOption { return func(r *api.CreateSandbox) { r.Env = env } }

// Limits bound the resources of the sandbox. A zero field is the server's default, never unlimited.
func Limits(l api.Limits) CreateOption { return func(r *api.CreateSandbox) { r.Limits = &l } }

// Engine sets the engine that isolates the sandbox, by a name that Client.Engines lists. The
// request fails if the policy requires a stronger boundary than the engine has. Without this option
// the server uses its default engine if it suits the policy and the request, or else the suitable
// engine with the weakest boundary.
func Engine(name string) CreateOption { return func(r *api.CreateSandbox) { r.Engine = name } }

// AtLeast sets the weakest boundary that the sandbox's engine may have, such as userspace-kernel.
// The policy may ask for a stronger one.
func AtLeast(boundary string) CreateOption {
	return func(r *api.CreateSandbox) { r.AtLeast = boundary }
}

// Containers lets root inside run container engines, such as Docker. The request fails if the
// policy forbids it, or if the engine cannot.
func Containers() CreateOption { return func(r *api.CreateSandbox) { r.Containers = true } }

// PrivatePorts requires the traffic token for requests to ports of programs inside.
func PrivatePorts() CreateOption { return func(r *api.CreateSandbox) { r.PrivatePorts = true } }

// Level sets the preset policy that other policy settings extend: strict, standard, light or
// minimal.
func Level(name string) CreateOption { return func(r *api.CreateSandbox) { access(r).Level = name } }

// Net sets the network: none, dev, open or policy.
func Net(name string) CreateOption { return func(r *api.CreateSandbox) { access(r).Net = name } }

// Allow allows hosts, as host or host:port. Without Net, Policy or Allow a sandbox has
// no network.
func Allow(hosts ...string) CreateOption {
	return func(r *api.CreateSandbox) { access(r).Allow = append(access(r).Allow, hosts...) }
}

// Policy sets a policy document in YAML.
func Policy(document string) CreateOption {
	return func(r *api.CreateSandbox) { access(r).Policy = document }
}

// Access sets the network access and the policy as a whole.
func Access(a api.Access) CreateOption {
	return func(r *api.CreateSandbox) { *access(r) = a }
}

func access(r *api.CreateSandbox) *api.Access {
	if r.Access == nil {
		r.Access = &api.Access{}
	}
	return r.Access
}
