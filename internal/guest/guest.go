package guest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/guest/files"
	"github.com/crannog/crannog/internal/guest/filesystem"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/metrics"
	"github.com/crannog/crannog/internal/guest/modules"
	"github.com/crannog/crannog/internal/guest/process"
	"github.com/crannog/crannog/internal/guest/reap"
)

// OwnPrograms is Crannog's directory in the sandbox, for programs that callers expect and the
// template lacks. It comes last in PATH, so that the template's programs take precedence.
const OwnPrograms = "/.crannog/bin"

// DefaultPath is the default of Options.Path.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" + OwnPrograms

// NpmConfig is npm's configuration for all users of the sandbox. npm looks for this file beside its
// installation directory, which differs between systems, unless an environment variable names it.
const NpmConfig = "/etc/npmrc"

// PathOf returns the PATH of a user with the given home.
func PathOf(home string) string { return identity.SearchPath(home, DefaultPath) }

// Options configure the guest's environment.
type Options struct {
	// Users finds accounts. Required.
	Users identity.Users
	// Switch is set if the guest is root and runs each request as the request's user. Otherwise
	// everything runs as the current user.
	Switch bool
	// Reaper waits for child processes. With nil, each process is waited for directly.
	Reaper reap.Reaper
	// End is called once, on its own goroutine, when Config.EndAt has passed. If nil, EndAt has no
	// effect.
	End func()
	// Path is the PATH of processes, after the program directories in their home directory. ""
	// means DefaultPath.
	Path string
	// NpmConfig is npm's configuration for all users. "" means npm's own default.
	NpmConfig string
	// Lookups returns the names that programs tried to resolve. It is nil if there is a network.
	Lookups func() Lookups
	// Claim configures a warm sandbox for its first user, and calls Renew. It is nil where warm
	// sandboxes are not supported.
	Claim func(context.Context, Config) error
	// Modules starts programs that are WebAssembly modules. It is nil on other engines.
	Modules *modules.Runner
	// Log receives errors that no answer reports. With nil, they are discarded.
	Log *slog.Logger
}

// Guest serves one sandbox. It is safe for concurrent use.
type Guest struct {
	opts      Options
	log       *slog.Logger
	process   *process.Service
	directory *filesystem.Service
	files     *files.Service
	metrics   *metrics.Sampler
	handler   http.Handler

	mu    sync.Mutex
	cfg   Config // without its files
	env   map[string]string
	endAt time.Time
	timer *time.Timer
	ended bool // End was called
	// overdue is set once the end time was found to have passed.
	overdue bool
	closed  bool
}

// New returns a guest. It serves once its Handler is used.
func New(cfg Config, opts Options) (*Guest, error) {
	if opts.Users == nil {
		return nil, errors.New("guest: a user database is required")
	}
	if err := cfg.check(opts.Users); err != nil {
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Reaper == nil {
		opts.Reaper = reap.Each{}
	}
	if opts.Path == "" {
		opts.Path = DefaultPath
	}
	g := &Guest{opts: opts, log: opts.Log}
	g.setConfig(cfg)
	p := configure(cfg, opts, g)
	g.process, g.directory, g.files, g.metrics = process.New(p.process), filesystem.New(p.directory), files.New(p.files), metrics.New(p.limits)
	g.handler = g.routes()
	g.setEnd(cfg.EndAt)
	return g, nil
}

// check rejects an incomplete configuration.
func (c Config) check(users identity.Users) error {
	if c.AccessToken == "" || c.ControlToken == "" {
		// An empty token would match a request without a token.
		return errors.New("guest: access token and control token are required")
	}
	if _, err := users.Lookup(c.DefaultUser); err != nil {
		return fmt.Errorf("guest: default user: %w", err)
	}
	return nil
}

// serviceConfigs has the configurations of the services.
type serviceConfigs struct {
	process   process.Config
	directory filesystem.Config
	files     files.Config
	limits    metrics.Limits
}

// configure returns the configurations of the services.
func configure(cfg Config, opts Options, g *Guest) serviceConfigs {
	accounts := identity.Accounts{Users: opts.Users, Default: cfg.DefaultUser, NoRoot: cfg.NoRoot, OneUser: cfg.OneUser}
	actor := identity.Actor{Switch: opts.Switch}
	return serviceConfigs{
		process: process.Config{
			Accounts: accounts, Actor: actor, Reaper: opts.Reaper, Env: g.Env,
			Path: strings.Join(append(slices.Clone(cfg.Tools.Path), opts.Path), ":"), NpmConfig: opts.NpmConfig, DefaultDir: cfg.DefaultDir, CommandTimeout: cfg.CommandTimeout,
			Modules: opts.Modules,
		},
		directory: filesystem.Config{Accounts: accounts, Actor: actor, DefaultDir: cfg.DefaultDir},
		files: files.Config{
			Accounts: accounts, Actor: actor, Log: opts.Log, DefaultDir: cfg.DefaultDir, Token: g.AccessToken,
		},
		limits: metrics.Limits{MilliCPU: cfg.MilliCPU, MemoryBytes: cfg.MemoryBytes, DiskBytes: cfg.DiskBytes, HostMemory: cfg.HostMemory},
	}
}

// setConfig replaces the configuration and the variables of all processes.
func (g *Guest) setConfig(cfg Config) {
	cfg.Files = nil // they are large, and were written already
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cfg, g.env = cfg, environment(cfg, cfg.Env)
}

// Renew replaces the configuration, as if g had been created with cfg. Processes, watchers and
// requests in progress continue.
func (g *Guest) Renew(cfg Config) error {
	if err := cfg.check(g.opts.Users); err != nil {
		return err
	}
	g.setConfig(cfg)
	p := configure(cfg, g.opts, g)
	g.process.Renew(p.process)
	g.directory.Renew(p.directory)
	g.files.Renew(p.files)
	g.metrics.Renew(p.limits)
	g.setEnd(cfg.EndAt)
	return nil
}

// environment returns the variables that the sandbox sets for every process.
func environment(cfg Config, env map[string]string) map[string]string {
	all := map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": cfg.SandboxID, "E2B_TEMPLATE_ID": cfg.TemplateID}
	maps.Copy(all, env)
	return all
}

// Handler serves all paths of the guest's port.
func (g *Guest) Handler() http.Handler { return g.handler }

// Env returns the sandbox's variables. The map must not be changed.
func (g *Guest) Env() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.env
}

// AccessToken returns the current token of the data plane.
func (g *Guest) AccessToken() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cfg.AccessToken
}

func (g *Guest) controlToken() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cfg.ControlToken
}

// Command starts a process for the guest itself, as the default user and with the variables in cmd.
func (g *Guest) Command(cmd *exec.Cmd) (*process.Command, error) {
	user, err := g.defaultUser()
	if err != nil {
		return nil, err
	}
	return g.process.Command(user, cmd)
}

// Environ returns the environment of the default user's processes.
func (g *Guest) Environ() map[string]string {
	user, err := g.defaultUser()
	if err != nil {
		g.log.Error("default user is gone", "err", err)
		user.Home = "/"
	}
	return g.process.Environ(user)
}

// defaultUser returns the default user. Its name is set even if defaultUser returns an error.
func (g *Guest) defaultUser() (identity.User, error) {
	g.mu.Lock()
	accounts := identity.Accounts{Users: g.opts.Users, Default: g.cfg.DefaultUser, NoRoot: g.cfg.NoRoot, OneUser: g.cfg.OneUser}
	g.mu.Unlock()
	user, err := accounts.ByName("")
	if err != nil {
		user = identity.User{Name: accounts.Default}
	}
	return user, err
}

// Close closes all streams and kills every process. It may be called more than once.
func (g *Guest) Close() error {
	g.mu.Lock()
	g.closed = true
	if g.timer != nil {
		g.timer.Stop()
	}
	g.mu.Unlock()
	return errors.Join(g.directory.Close(), g.process.Close())
}
