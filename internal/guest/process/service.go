// Package process owns the process service: it starts programs as users of the sandbox, writes to
// their input, sends their output to listeners, and ends them in time.
package process

import (
	"errors"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/reap"
)

// Config is what a Service is made from. All fields but the times must be set.
type Config struct {
	Accounts identity.Accounts
	Actor    identity.Actor
	Reaper   reap.Reaper
	// Env returns the sandbox's variables, which may change while it runs.
	Env func() map[string]string
	// Path is the PATH of every process, behind what its user has installed.
	Path string
	// NpmConfig is npm's configuration for all users, or "".
	NpmConfig string
	// DefaultDir is the working directory where a request names none, or ""
	// for the user's home.
	DefaultDir string
	// CommandTimeout ends a command that asks for no limit itself. Zero means
	// that only the sandbox's end does.
	CommandTimeout time.Duration
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

// Renew replaces what the service was made from. Requests that run go on with
// what they have read of it.
func (s *Service) Renew(cfg Config) { s.config.Store(&cfg) }

func (s *Service) cfg() *Config { return s.config.Load() }

// closeWait is how long Close waits for killed processes. The kernel ends
// them within milliseconds, unless one hangs in a system call.
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

// userError turns a failed look-up of the request's user into what the
// client sees.
func userError(err error) error {
	if unknown, ok := errors.AsType[*identity.UnknownError](err); ok {
		return connect.NewError(connect.CodeUnauthenticated, unknown)
	}
	return connect.NewError(connect.CodeInternal, err)
}
