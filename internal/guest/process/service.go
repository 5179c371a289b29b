// Package process owns the process service: it starts programs as users of the sandbox, writes
// their input, streams their output, and enforces their time limits.
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

// Config configures a Service. All fields except the times are required.
type Config struct {
	Accounts identity.Accounts
	Actor    identity.Actor
	Reaper   reap.Reaper
	// Env returns the sandbox's variables, which may change while it runs.
	Env func() map[string]string
	// Path is the PATH of every process, after the program directories of the user's home.
	Path string
	// NpmConfig is npm's configuration for all users, or "".
	NpmConfig string
	// DefaultDir is the working directory of requests that name none. "" means the user's home.
	DefaultDir string
	// CommandTimeout is the time limit of a command whose request has none. Zero means no limit.
	CommandTimeout time.Duration
	// Modules starts programs that are WebAssembly modules. It is nil on other engines.
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

// Renew replaces the configuration. Requests in progress continue with the old one.
func (s *Service) Renew(cfg Config) { s.config.Store(&cfg) }

func (s *Service) cfg() *Config { return s.config.Load() }

// closeWait is how long Close waits for killed processes. The kernel ends them within milliseconds,
// unless one hangs in a system call.
const closeWait = 5 * time.Second

// Close closes all streams, kills all processes and waits for them.
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

// userError converts the error of looking up the request's user.
func userError(err error) error {
	if unknown, ok := errors.AsType[*identity.UnknownError](err); ok {
		return connect.NewError(connect.CodeUnauthenticated, unknown)
	}
	return connect.NewError(connect.CodeInternal, err)
}
