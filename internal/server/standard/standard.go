// Package standard owns the choice of parts for this machine: the embedded
// gVisor, the host's tools as template, the guest that the binary carries,
// and the roles that the binary plays when it starts itself again.
package standard

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/gvisor"
	"github.com/crannog/crannog/internal/engine/jail"
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/engine/linux/ocispec"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/host/embedded/guestbin"
	"github.com/crannog/crannog/internal/host/embedded/runtimebin"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/image/registry"
	"github.com/crannog/crannog/internal/image/template"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server"
	"github.com/crannog/crannog/internal/store"
)

// Dispatch plays another role if this process was started for one, and then
// does not return. It comes first in main.
func Dispatch() {
	guest := reexec.Role{Match: reexec.Arg0(ocispec.GuestArg0), Run: guestmain.Main}
	reexec.Dispatch(append(slices.Concat(gvisor.Roles(), gateway.Roles()), guest, setup.Role(), setup.ProbeRole())...)
}

// Options say where and how to open.
type Options struct {
	State   string
	Log     *slog.Logger
	Server  bool
	Domain  string
	Version string
	// DefaultEngine is the engine of a sandbox that names none; "" is the first one.
	DefaultEngine string
	// Starts bound how sandboxes are started.
	Starts server.Starts
	// Pool lets sandboxes wait for callers while a server runs; nil is none.
	Pool *server.Pool
	// Webhook is told of approvals; nil is none.
	Webhook *approval.Webhook
	// Connections bound what clients take of a server.
	Connections server.Connections
	// Doors are further surfaces of a server.
	Doors []server.Opening
	// Settings are the rules for all sandboxes.
	Settings sandbox.Settings
	// SecretsKey and SecretsExec are the daemon's.
	SecretsKey, SecretsExec string
	// Record bounds the record.
	Record server.RecordOptions
	// Images say where images come from and how much disk they may take.
	Images Images
	// HostEtc is what sandboxes see of /etc besides.
	HostEtc []string
}

// Images are the settings of the image store.
type Images struct {
	Registries, Mirrors, Insecure string
	Budget                        int64
}

// openImages opens the image store of a state directory.
func openImages(o Options, guest string) (*library.Library, error) {
	var rules registry.Rules
	var err error
	if rules.Allow, err = registry.ParseList(o.Images.Registries); err != nil {
		return nil, err
	}
	if rules.Insecure, err = registry.ParseList(o.Images.Insecure); err != nil {
		return nil, err
	}
	if rules.Mirrors, err = registry.ParseMirrors(o.Images.Mirrors); err != nil {
		return nil, err
	}
	return library.Open(library.Options{
		Dir: filepath.Join(o.State, "oci"), Guest: guest, Budget: o.Images.Budget, Log: o.Log, Registry: registry.Options{Rules: rules},
	})
}

// Engines makes the engines of this program alone, for looking at what this machine
// can do. byDefault names the default engine; "" is the first one.
func Engines(state string, log *slog.Logger, byDefault string) (*engine.Registry, error) {
	if err := checkStatic(); err != nil {
		return nil, err
	}
	// Programs are put into it and run from it: in a directory of another user,
	// they could be exchanged for others.
	if err := store.CheckPrivate(state); err != nil {
		return nil, err
	}
	runtime, err := runtimebin.Path(filepath.Join(state, "runtime"))
	if err != nil {
		return nil, err
	}
	gv, err := gvisor.New(gvisor.Options{StateDir: state, Log: log, Runtime: runtime})
	if err != nil {
		return nil, err
	}
	jailed, err := jail.New(jail.Options{StateDir: state, Log: log})
	if err != nil {
		return nil, err
	}
	return engine.NewRegistry(byDefault, gv, jailed)
}

// Open assembles a daemon. What the machine cannot do is an error here, with
// what would help, and not a weaker wall later.
func Open(ctx context.Context, o Options) (*server.Server, error) {
	engines, err := Engines(o.State, o.Log, o.DefaultEngine)
	if err != nil {
		return nil, err
	}
	guest, err := guestbin.Path(filepath.Join(o.State, "guest"))
	if err != nil {
		return nil, err
	}
	images, err := openImages(o, guest)
	if err != nil {
		return nil, err
	}
	return server.Open(ctx, server.Options{
		StateDir: o.State, Log: o.Log, Engines: engines, Library: images,
		Templates: images.Beside(template.NewHost(filepath.Join(o.State, "templates"), guest, o.HostEtc...)),
		Programs:  []string{filepath.Join(o.State, "runtime"), filepath.Join(o.State, "guest")},
		Server:    o.Server, Domain: o.Domain, Version: o.Version, Starts: o.Starts, Pool: o.Pool, Webhook: o.Webhook, Connections: o.Connections, Doors: o.Doors,
		Settings: o.Settings, SecretsKey: o.SecretsKey, SecretsExec: o.SecretsExec, Record: o.Record,
	})
}
