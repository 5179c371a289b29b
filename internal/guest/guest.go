package guest

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os/exec"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/guest/files"
	"github.com/crannog/crannog/internal/guest/filesystem"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/metrics"
	"github.com/crannog/crannog/internal/guest/process"
	"github.com/crannog/crannog/internal/guest/reap"
)

// DefaultPath is the PATH of processes where Options has none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Options say where the guest runs.
type Options struct {
	// Users finds accounts. It must be set.
	Users identity.Users
	// Switch says that the guest is root and does each request's work as the
	// request's user. Without it everything happens as the current user.
	Switch bool
	// Reaper waits for children; nil waits for each by itself.
	Reaper reap.Reaper
	// End is called once, on a goroutine of its own, when Config.EndAt has
	// come. Without it EndAt has no effect.
	End func()
	// Path is the PATH of processes; "" is DefaultPath.
	Path string
	// Asked are the names that were asked for in vain; nil where there is a
	// network.
	Asked func() []string
	// Log gets what no answer tells; nil drops it.
	Log *slog.Logger
}

// Guest serves one sandbox. It is safe for concurrent use.
type Guest struct {
	cfg       Config
	accounts  identity.Accounts
	log       *slog.Logger
	process   *process.Service
	directory *filesystem.Service
	files     *files.Service
	metrics   *metrics.Sampler
	handler   http.Handler
	end       func()
	asked     func() []string

	mu     sync.Mutex
	token  string
	env    map[string]string
	endAt  time.Time
	timer  *time.Timer
	ended  bool
	closed bool
}

// New returns a guest that serves nothing until its Handler is used.
func New(cfg Config, opts Options) (*Guest, error) {
	if cfg.AccessToken == "" || cfg.ControlToken == "" {
		// An empty token would be matched by a request that has none.
		return nil, errors.New("guest: access token and control token are required")
	}
	if opts.Users == nil {
		return nil, errors.New("guest: a user database is required")
	}
	if _, err := opts.Users.Lookup(cfg.DefaultUser); err != nil {
		return nil, fmt.Errorf("guest: default user: %w", err)
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
	g := &Guest{cfg: cfg, log: opts.Log, end: opts.End, asked: opts.Asked, token: cfg.AccessToken, env: environment(cfg, cfg.Env)}
	g.assemble(opts)
	g.setEnd(cfg.EndAt)
	return g, nil
}

func (g *Guest) assemble(opts Options) {
	g.accounts = identity.Accounts{Users: opts.Users, Default: g.cfg.DefaultUser, NoRoot: g.cfg.NoRoot}
	actor := identity.Actor{Switch: opts.Switch}
	if g.cfg.GrantFileAccess {
		actor.FileAccess = g.cfg.DefaultUser
	}
	g.process = process.New(process.Config{
		Accounts: g.accounts, Actor: actor, Reaper: opts.Reaper, Env: g.Env,
		Path: opts.Path, DefaultDir: g.cfg.DefaultDir, CommandTimeout: g.cfg.CommandTimeout,
	})
	g.directory = filesystem.New(filesystem.Config{
		Accounts: g.accounts, Actor: actor, DefaultDir: g.cfg.DefaultDir,
	})
	g.files = files.New(files.Config{
		Accounts: g.accounts, Actor: actor, Log: opts.Log, DefaultDir: g.cfg.DefaultDir, Token: g.AccessToken,
	})
	g.metrics = metrics.New(metrics.Limits{
		MilliCPU: g.cfg.MilliCPU, MemoryBytes: g.cfg.MemoryBytes, DiskBytes: g.cfg.DiskBytes,
	})
	g.handler = g.routes()
}

// environment is what the sandbox sets for every process.
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

// AccessToken returns what opens the data plane at this time.
func (g *Guest) AccessToken() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.token
}

// Command starts a process of the guest's own as the default user, with the
// variables that cmd has.
func (g *Guest) Command(cmd *exec.Cmd) (*process.Command, error) {
	user, err := g.accounts.ByName("")
	if err != nil {
		return nil, err
	}
	return g.process.Command(user, cmd)
}

// Environ returns the variables of the default user's processes.
func (g *Guest) Environ() map[string]string {
	user, err := g.accounts.ByName("")
	if err != nil {
		g.log.Error("default user is gone", "err", err)
		user = identity.User{Name: g.cfg.DefaultUser, Home: "/"}
	}
	return g.process.Environ(user)
}

// Close cuts all streams and kills every process. Closing twice is fine.
func (g *Guest) Close() error {
	g.mu.Lock()
	g.closed = true
	if g.timer != nil {
		g.timer.Stop()
	}
	g.mu.Unlock()
	return errors.Join(g.directory.Close(), g.process.Close())
}
