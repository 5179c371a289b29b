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
	"github.com/crannog/crannog/internal/guest/process"
	"github.com/crannog/crannog/internal/guest/reap"
)

// OwnPrograms is our own directory inside, for programs that callers expect and the template does
// not have. It comes last in PATH, so that it never hides one of the template's.
const OwnPrograms = "/.crannog/bin"

// DefaultPath is the PATH of processes if Options has none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" + OwnPrograms

// NpmConfig is the sandbox's own configuration of npm for all users. npm looks for such a file
// beside its own installation directory, which differs between systems, unless a variable names it.
const NpmConfig = "/etc/npmrc"

// PathOf returns the PATH of a user with this home.
func PathOf(home string) string { return identity.SearchPath(home, DefaultPath) }

// Options configure where the guest runs.
type Options struct {
	// Users finds accounts. It is required.
	Users identity.Users
	// Switch is set if the guest is root and does each request's work as the request's user.
	// Otherwise everything happens as the current user.
	Switch bool
	// Reaper waits for children; nil waits for each by itself.
	Reaper reap.Reaper
	// End is called once, on its own goroutine, when Config.EndAt has passed. Without it EndAt has
	// no effect.
	End func()
	// Path is the PATH of processes after the programs of their home; "" is DefaultPath.
	Path string
	// NpmConfig is npm's configuration for all users; "" leaves it to npm.
	NpmConfig string
	// Asked returns the names that were looked up in vain; nil if there is a network.
	Asked func() Asked
	// Claim gives a warm sandbox to its new owner, or returns why that is not possible;
	// it calls Renew. Nil where warm sandboxes are not supported.
	Claim func(context.Context, Config) error
	// Log gets errors that no answer reports; nil drops them.
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
	ended bool
	// overdue is set if the end was found to have passed once.
	overdue bool
	closed  bool
}

// New returns a guest that serves nothing until its Handler is used.
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
	g.take(cfg)
	p := parts(cfg, opts, g)
	g.process, g.directory, g.files, g.metrics = process.New(p.process), filesystem.New(p.directory), files.New(p.files), metrics.New(p.limits)
	g.handler = g.routes()
	g.setEnd(cfg.EndAt)
	return g, nil
}

// check rejects an incomplete configuration.
func (c Config) check(users identity.Users) error {
	if c.AccessToken == "" || c.ControlToken == "" {
		// An empty token would match a request without one.
		return errors.New("guest: access token and control token are required")
	}
	if _, err := users.Lookup(c.DefaultUser); err != nil {
		return fmt.Errorf("guest: default user: %w", err)
	}
	return nil
}

// composition is what the services are made from.
type composition struct {
	process   process.Config
	directory filesystem.Config
	files     files.Config
	limits    metrics.Limits
}

func parts(cfg Config, opts Options, g *Guest) composition {
	accounts := identity.Accounts{Users: opts.Users, Default: cfg.DefaultUser, NoRoot: cfg.NoRoot, OneUser: cfg.OneUser}
	actor := identity.Actor{Switch: opts.Switch}
	return composition{
		process: process.Config{
			Accounts: accounts, Actor: actor, Reaper: opts.Reaper, Env: g.Env,
			Path: strings.Join(append(slices.Clone(cfg.Tools.Path), opts.Path), ":"), NpmConfig: opts.NpmConfig, DefaultDir: cfg.DefaultDir, CommandTimeout: cfg.CommandTimeout,
		},
		directory: filesystem.Config{Accounts: accounts, Actor: actor, DefaultDir: cfg.DefaultDir},
		files: files.Config{
			Accounts: accounts, Actor: actor, Log: opts.Log, DefaultDir: cfg.DefaultDir, Token: g.AccessToken,
		},
		limits: metrics.Limits{MilliCPU: cfg.MilliCPU, MemoryBytes: cfg.MemoryBytes, DiskBytes: cfg.DiskBytes, HostMemory: cfg.HostMemory},
	}
}

// take sets the tokens, variables and names of cfg.
func (g *Guest) take(cfg Config) {
	cfg.Files = nil // they are large, and were written already
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cfg, g.env = cfg, environment(cfg, cfg.Env)
}

// Renew gives g another configuration, as if it had been made from it. Processes, watchers and
// requests in progress continue.
func (g *Guest) Renew(cfg Config) error {
	if err := cfg.check(g.opts.Users); err != nil {
		return err
	}
	g.take(cfg)
	p := parts(cfg, g.opts, g)
	g.process.Renew(p.process)
	g.directory.Renew(p.directory)
	g.files.Renew(p.files)
	g.metrics.Renew(p.limits)
	g.setEnd(cfg.EndAt)
	return nil
}

// environment returns what the sandbox sets for every process.
func environment(cfg Config, env map[string]string) map[string]string {
	all := map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": cfg.SandboxID, "E2B_TEMPLATE_ID": cfg.TemplateID}
	maps.Copy(all, env)
	return all
}

// Handler serves everything on the guest's port.
func (g *Guest) Handler() http.Handler { return g.handler }

// Env returns the sandbox's variables. The map must not be changed.
func (g *Guest) Env() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.env
}

// AccessToken returns the present token of the data plane.
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

// Command starts a process of the guest's own as the default user, with the variables in cmd.
func (g *Guest) Command(cmd *exec.Cmd) (*process.Command, error) {
	user, err := g.defaultUser()
	if err != nil {
		return nil, err
	}
	return g.process.Command(user, cmd)
}

// Environ returns the variables of the default user's processes.
func (g *Guest) Environ() map[string]string {
	user, err := g.defaultUser()
	if err != nil {
		g.log.Error("default user is gone", "err", err)
		user.Home = "/"
	}
	return g.process.Environ(user)
}

// defaultUser has the name of the default user also after an error.
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

// Close cuts all streams and kills every process. It may be called twice.
func (g *Guest) Close() error {
	g.mu.Lock()
	g.closed = true
	if g.timer != nil {
		g.timer.Stop()
	}
	g.mu.Unlock()
	return errors.Join(g.directory.Close(), g.process.Close())
}
