// Package interpreter owns the code interpreter inside a sandbox: contexts that keep their state
// between executions, the workers that run the code, and the HTTP service that streams output and
// results. The caller starts processes as the sandbox's user.
package interpreter

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Options configure the interpreter. Every field is required.
type Options struct {
	// Starter starts the workers as the sandbox's user.
	Starter Starter
	// Home is the working directory of contexts that name none, until Renew.
	Home string
	// Env returns the whole environment for a worker. It is called at each start, so that changes
	// reach workers that start later.
	Env func() map[string]string
	// AccessToken returns the token that /execute requires in X-Access-Token. While it is nil or
	// returns "", nothing is executed.
	AccessToken func() string
	Log         *slog.Logger
}

// maxContexts limits how many contexts a forgetful client can accumulate. Each may have a worker,
// and a sandbox has 512 processes by default.
const maxContexts = 128

// pace holds the times that tests shorten.
type pace struct {
	keepalive time.Duration // silence after which a keepalive line is sent
	start     time.Duration // how long a worker may take to be ready
	interrupt time.Duration // from SIGINT to killing what the code started
	force     time.Duration // from there to killing the worker
}

// A connection's end is only noticed when something is written to it, so the protocol requires a
// line every 5 seconds. Four seconds for an interrupt leave room for a restart within the 10
// seconds that clients wait.
var defaultPace = pace{keepalive: 5 * time.Second, start: 20 * time.Second, interrupt: 3 * time.Second, force: time.Second}

// Server serves the interpreter. It is safe for concurrent use.
type Server struct {
	opts Options
	pace pace
	mux  *http.ServeMux
	// life ends with Close, and with it every execution and worker.
	life context.Context
	end  context.CancelFunc

	mu       sync.Mutex
	sessions []*session          // in the order of creation
	defaults map[string]*session // by language
	severed  chan struct{}       // closed by the next Sever
	home     string              // of contexts that name no directory
	renewals int                 // how often Renew was called
	draws    int                 // how often with Fresh

	workers sync.WaitGroup
}

// New creates a server. Its default contexts are listed at once; their workers start on first use.
func New(opts Options) *Server {
	s := &Server{opts: opts, pace: defaultPace, defaults: map[string]*session{}, severed: make(chan struct{}), home: opts.Home}
	s.life, s.end = context.WithCancel(context.Background())
	for _, name := range []string{"python", "javascript"} {
		sess := s.newSession(languages[name], opts.Home)
		s.sessions = append(s.sessions, sess)
		s.defaults[name] = sess
	}
	s.routes()
	return s
}

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Close ends every execution and worker and returns when they are gone.
func (s *Server) Close() {
	s.end()
	for _, sess := range s.list() {
		sess.close()
	}
	s.workers.Wait()
}
