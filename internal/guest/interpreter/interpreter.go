// Package interpreter owns the code interpreter inside a sandbox: contexts that preserve state
// between executions, the workers that run the code, and the HTTP service that streams output and
// results. Its caller provides the function that starts processes as the sandbox's user.
package interpreter

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Options configure the interpreter. Every field but QuickJS is required.
type Options struct {
	// Starter starts the workers as the sandbox's user.
	Starter Starter
	// Home is the working directory of contexts that name none. Renew can change it.
	Home string
	// Env returns the complete environment of a worker. It is called at each start, so that workers
	// that start later see changes.
	Env func() map[string]string
	// AccessToken returns the token that /execute requires in X-Access-Token. If it is nil or
	// returns "", all executions are rejected.
	AccessToken func() string
	Log         *slog.Logger
	// QuickJS returns the program of the worker for JavaScript in a sandbox whose programs are
	// WebAssembly modules. Such a sandbox has no other language. It is nil in all other sandboxes.
	QuickJS func(context.Context) (Program, error)
}

// maxContexts limits the contexts, because clients may forget to remove them. Each may have a
// worker, and a sandbox has 512 processes by default.
const maxContexts = 128

// pace has the time limits, which tests shorten.
type pace struct {
	keepalive time.Duration // silence after which a keepalive line is sent
	start     time.Duration // how long a worker may take to be ready
	interrupt time.Duration // from SIGINT to killing what the code started
	force     time.Duration // from then to killing the worker
}

// defaultPace has the limits outside of tests. The end of a connection is noticed only on a write,
// so the protocol requires a line every 5 seconds. Four seconds for an interrupt leave time for a
// restart within the 10 seconds that clients wait.
var defaultPace = pace{keepalive: 5 * time.Second, start: 20 * time.Second, interrupt: 3 * time.Second, force: time.Second}

// Server serves the code interpreter. It is safe for concurrent use.
type Server struct {
	opts Options
	// languages has the languages of this sandbox by canonical name.
	languages map[string]*language
	pace      pace
	mux       *http.ServeMux
	// life is cancelled by Close, which ends every execution and worker.
	life context.Context
	end  context.CancelFunc

	mu            sync.Mutex
	sessions      []*session          // in the order of creation
	defaults      map[string]*session // by language
	cutOff        chan struct{}       // closed by the next call of Sever
	home          string              // directory of contexts that name none
	renewals      int                 // number of calls of Renew
	freshRenewals int                 // number of these calls with Fresh

	workers sync.WaitGroup
}

// New returns a server. The default contexts are listed at once, but their workers start on first
// use.
func New(opts Options) *Server {
	s := &Server{opts: opts, languages: languages, pace: defaultPace, defaults: map[string]*session{}, cutOff: make(chan struct{}), home: opts.Home}
	s.life, s.end = context.WithCancel(context.Background())
	if opts.QuickJS != nil {
		s.languages = moduleLanguages
	}
	for _, name := range []string{"python", "javascript"} {
		lang, ok := s.languages[name]
		if !ok {
			continue
		}
		sess := s.newSession(lang, opts.Home)
		s.sessions = append(s.sessions, sess)
		s.defaults[name] = sess
	}
	s.routes()
	return s
}

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Close ends every execution and worker and waits for them.
func (s *Server) Close() {
	s.end()
	for _, sess := range s.list() {
		sess.close()
	}
	s.workers.Wait()
}
