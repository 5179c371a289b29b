// Package standard owns the choice of the components for this machine: the embedded gVisor, the
// host's tools as the template, the embedded guest, and the roles in which the binary starts
// itself.
package standard

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/docker"
	"github.com/crannog/crannog/internal/engine/gvisor"
	"github.com/crannog/crannog/internal/engine/jail"
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/engine/linux/ocispec"
	"github.com/crannog/crannog/internal/engine/microvm"
	"github.com/crannog/crannog/internal/engine/microvm/keeper"
	"github.com/crannog/crannog/internal/engine/wasm"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/host/embedded/guestbin"
	"github.com/crannog/crannog/internal/host/embedded/quickjsbin"
	"github.com/crannog/crannog/internal/host/embedded/runtimebin"
	"github.com/crannog/crannog/internal/host/embedded/wasmbin"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/image/registry"
	"github.com/crannog/crannog/internal/image/template"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server"
	"github.com/crannog/crannog/internal/store"
	"github.com/crannog/crannog/internal/telemetry"
)

// Dispatch runs the role for which this process was started, if there is one, and then does not
// return. main calls Dispatch first.
func Dispatch() {
	guest := reexec.Role{Match: reexec.Arg0(ocispec.GuestArg0), Run: guestmain.Play}
	reexec.Dispatch(append(slices.Concat(gvisor.Roles(), gateway.Roles()), guest, setup.Role(), setup.ProbeRole(), keeper.Role())...)
}

// Options configure Open.
type Options struct {
	State   string
	Log     *slog.Logger
	Server  bool
	Domain  string
	Version string
	// DefaultEngine is the default engine of sandboxes; "" means the first one.
	DefaultEngine string
	// Docker configures the engine that uses a Docker Engine.
	Docker Docker
	// MicroVM configures the engine that uses virtual machines.
	MicroVM MicroVM
	// NoDevice connects sandboxes of the engines jail and docker by a proxy instead of a network
	// interface.
	NoDevice bool
	// Starts bound how sandboxes are started.
	Starts server.Starts
	// Pool configures the warm pool of a server; nil means none.
	Pool *server.Pool
	// Webhook receives approval requests; nil means none.
	Webhook *approval.Webhook
	// Connections bound the connections of clients.
	Connections server.Connections
	// Frontends are further frontends of a server.
	Frontends []server.FrontendMount
	// Settings are the policies and limits for all sandboxes.
	Settings sandbox.Settings
	// SecretsKey and SecretsExec are as in server.Options.
	SecretsKey, SecretsExec string
	// Audit bounds the audit log.
	Audit server.AuditOptions
	// Images configures the sources and the disk space of images.
	Images Images
	// Packages configures the package cache.
	Packages server.PackageOptions
	// Tracing sends traces and figures; nil sends none.
	Tracing *telemetry.Tracing
	// HostEtc lists further paths of /etc that sandboxes see.
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

// Docker are the settings of the engine that uses a Docker Engine.
type Docker struct {
	// Host is the address of the daemon, and Runtime the name of its OCI runtime; "" means the
	// defaults.
	Host, Runtime string
}

// MicroVM are the settings of the engine that uses virtual machines.
type MicroVM struct {
	// Kernel is a kernel or a directory with kernels; "" is the newest in /boot.
	Kernel string
	// Emulate runs machines without the processor's virtualization, which is no boundary.
	Emulate bool
}

// engineImages are the images for engines that have no image store of their own.
type engineImages interface {
	docker.Images
	microvm.Images
}

// Engines creates this program's engines without images, to check what this machine supports. It
// uses State, Log, DefaultEngine, Docker, MicroVM and NoDevice of the options.
func Engines(o Options) (*engine.Registry, error) {
	guest, err := writeGuest(o)
	if err != nil {
		return nil, err
	}
	return engines(o, guest, nil)
}

// writeGuest writes the embedded guest below the state directory, and returns its path.
func writeGuest(o Options) (guest string, err error) {
	if err := checkStatic(); err != nil {
		return "", err
	}
	// Programs are written to the state directory and run from it. If another user owned the
	// directory, that user could replace them.
	if err := store.CheckPrivate(o.State); err != nil {
		return "", err
	}
	return guestbin.Path(filepath.Join(o.State, "guest"))
}

func engines(o Options, guest string, images engineImages) (*engine.Registry, error) {
	runtime, err := runtimebin.Path(filepath.Join(o.State, "runtime"))
	if err != nil {
		return nil, err
	}
	gv, err := gvisor.New(gvisor.Options{StateDir: o.State, Log: o.Log, Runtime: runtime})
	if err != nil {
		return nil, err
	}
	jailed, err := jail.New(jail.Options{StateDir: o.State, Log: o.Log, NoDevice: o.NoDevice})
	if err != nil {
		return nil, err
	}
	runner, err := wasmbin.Path(runnerDir(o.State))
	if err != nil {
		return nil, err
	}
	modules, err := wasm.New(wasm.Options{StateDir: o.State, Log: o.Log, Runner: runner})
	if err != nil {
		return nil, err
	}
	contained, err := docker.New(docker.Options{StateDir: o.State, Log: o.Log, Guest: guest, Host: o.Docker.Host, Runtime: o.Docker.Runtime, NoDevice: o.NoDevice, Images: images})
	if err != nil {
		return nil, err
	}
	machines, err := microvm.New(microvm.Options{StateDir: o.State, Log: o.Log, Guest: guest, Kernel: o.MicroVM.Kernel, Emulate: o.MicroVM.Emulate, Images: images})
	if err != nil {
		return nil, err
	}
	return engine.NewRegistry(o.DefaultEngine, gv, jailed, contained, modules, machines)
}

// runnerDir is where the program that runs WebAssembly modules is written.
func runnerDir(state string) string { return filepath.Join(state, "runner") }

// javaScriptDir is where the module that runs JavaScript is written.
func javaScriptDir(state string) string { return filepath.Join(state, "javascript") }

// Open opens a state directory. If the machine lacks a requirement, Open returns an error with
// advice instead of using a weaker isolation.
func Open(ctx context.Context, o Options) (*server.Server, error) {
	guest, err := writeGuest(o)
	if err != nil {
		return nil, err
	}
	runner, err := wasmbin.Path(runnerDir(o.State))
	if err != nil {
		return nil, err
	}
	javascript, err := quickjsbin.Path(javaScriptDir(o.State))
	if err != nil {
		return nil, err
	}
	images, err := openImages(o, guest)
	if err != nil {
		return nil, err
	}
	engines, err := engines(o, guest, images)
	if err != nil {
		return nil, err
	}
	return server.Open(ctx, server.Options{
		StateDir: o.State, Log: o.Log, Engines: engines, Library: images,
		Templates: images.PrecededBy(template.NewHost(filepath.Join(o.State, "templates"), guest, o.HostEtc...).WithRunner(runner, javascript)),
		Programs:  []string{filepath.Join(o.State, "runtime"), filepath.Join(o.State, "guest"), runnerDir(o.State), javaScriptDir(o.State)},
		Server:    o.Server, Domain: o.Domain, Version: o.Version, Starts: o.Starts, Pool: o.Pool, Webhook: o.Webhook, Connections: o.Connections, Frontends: o.Frontends,
		Settings: o.Settings, SecretsKey: o.SecretsKey, SecretsExec: o.SecretsExec, Audit: o.Audit,
		Packages: o.Packages, Tracing: o.Tracing,
	})
}
