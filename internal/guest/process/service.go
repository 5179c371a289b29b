// Package process owns the process service: it starts programs as users of the sandbox, writes to
// their input, sends their output to listeners, and enforces their time limits.
package process

import (
	"errors"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/modules"
	"github.com/crannog/crannog/internal/guest/reap"
)

// Config configures a Service. All fields but the times are required.
type Config struct {
	Accounts identity.Accounts
	Actor    identity.Actor
	Reaper   reap.Reaper
	// Env returns the sandbox's variables, which may change while it runs.
	Env func() map[string]string
	// Path is the PATH of every process, after what its user has installed.
	Path string
	// NpmConfig is npm's configuration for all users, or "".
	NpmConfig string
	// DefaultDir is the working directory if a request names none, or "" for the user's home.
	DefaultDir string
	// CommandTimeout is the time limit of a command that requests none. Zero means that only the
	// sandbox's end stops it.
	CommandTimeout time.Duration
	// Modules starts the sandbox's programs where they are WebAssembly modules, or is nil.
	Modules *modules.Runner
}

// Service runs processes. It is safe for concurrent use.
type Service struct {
	config  atomic.Pointer[Config]
	table   table
	origins origins
	closing chan struct{}
}

var _ processpbconnect.ProcessHandler = (*Service)(nil)

// New returns a service without processes.
func New(cfg Config) *Service {
	s := &Service{closing: make(chan struct{}), table: newTable()}
	s.Renew(cfg)
	return s
}

// Renew replaces the configuration. Requests in progress continue with what they have read of the
// old one.
func (s *Service) Renew(cfg Config) { s.config.Store(&cfg) }

func (s *Service) cfg() *Config { return s.config.Load() }

// closeWait is how long Close waits for killed processes. The kernel ends them within milliseconds,
// unless one hangs in a system call.
const closeWait = 5 * time.Second

// Close cuts all streams, kills every process with its group and returns when
// they are gone.
func (s *Service) Close() error {
	live, first := s.table.close()
	if !first {
		return nil
	}
	close(s.closing)
	for _, p := range live {
		p.kill()
	}
	limit := time.NewTimer(closeWait)
	defer limit.Stop()
	for _, p := range live {
		select {
		case <-p.done:
		case <-limit.C:
			return errors.New("close process service: a process did not end")
		}
	}
	return nil
}

// userError converts a failed look-up of the request's user to the client's error.
func userError(err error) error {
	if unknown, ok := errors.AsType[*identity.UnknownError](err); ok {
		return connect.NewError(connect.CodeUnauthenticated, unknown)
	}
	return connect.NewError(connect.CodeInternal, err)
}
