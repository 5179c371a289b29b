package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/confine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/peercred"
)

const (
	// linger is how long the process keeps running without sandboxes and controllers, so that a
	// command that starts sandboxes one after the other can reuse it.
	linger = 2 * time.Second
	// maxControllers and maxSandboxes limit the effects of a controller's mistake.
	maxControllers = 64
	maxSandboxes   = 1024
)

// server is the state of the process.
type server struct {
	log    *slog.Logger
	env    Environment
	owner  int // the user whose controllers may connect, besides root
	report confine.Report
	about  hello

	mu        sync.Mutex
	peers     map[*peer]*controller
	sandboxes map[string]*attachedSandbox // nil while it is being attached
	idle      *time.Timer
	ending    bool
	end       chan struct{} // closed when the process is to end
	working   sync.WaitGroup
}

func newServer(w Environment, owner int, report confine.Report, log *slog.Logger) *server {
	s := &server{
		log: log, env: w, owner: owner, report: report, about: *w.about,
		peers: map[*peer]*controller{}, sandboxes: map[string]*attachedSandbox{}, end: make(chan struct{}),
	}
	s.idle = time.AfterFunc(linger, s.endIfIdle)
	return s
}

// run serves until the process is idle or ctx ends, and returns when every attachment is closed.
func (s *server) run(ctx context.Context, l *net.UnixListener) error {
	var failed error
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		failed = s.accept(l)
	}()
	select {
	case <-ctx.Done():
	case <-s.end:
	case <-accepting:
	}
	s.mu.Lock()
	s.ending = true
	sandboxes := make([]*attachedSandbox, 0, len(s.sandboxes))
	for _, b := range s.sandboxes {
		if b != nil {
			sandboxes = append(sandboxes, b)
		}
	}
	s.mu.Unlock()
	// Close the attachments first, because their ends are events for the controllers.
	for _, b := range sandboxes {
		s.drop(b, "the egress gateway has ended")
	}
	s.mu.Lock()
	for p := range s.peers {
		p.conn.Close()
	}
	s.mu.Unlock()
	l.Close()
	<-accepting
	s.working.Wait()
	if errors.Is(failed, net.ErrClosed) {
		return nil
	}
	return failed
}

func (s *server) accept(l *net.UnixListener) error {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return err
		}
		if cred, err := peercred.Of(conn); err != nil || int(cred.Uid) != s.owner && cred.Uid != 0 {
			// The directory's mode already keeps other users out. This check is for a socket that
			// was passed on.
			s.log.Warn("refused a controller of another user", "credentials", cred, "err", err)
			conn.Close()
			continue
		}
		s.mu.Lock()
		full := s.ending || len(s.peers) >= maxControllers
		if !full {
			c := &controller{server: s}
			c.peer = newPeer(conn, true, c.handle)
			s.peers[c.peer] = c
			s.idle.Stop()
			s.working.Go(func() { s.serve(c) })
		}
		s.mu.Unlock()
		if full {
			conn.Close()
		}
	}
}

func (s *server) serve(c *controller) {
	err := c.peer.serve()
	s.log.Debug("a controller left", "err", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, c.peer)
	s.watchIdle()
}

// watchIdle starts the idle timer if there is nothing left to do. mu must be held.
func (s *server) watchIdle() {
	if len(s.peers) == 0 && len(s.sandboxes) == 0 {
		s.idle.Reset(linger)
	}
}

func (s *server) endIfIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.peers) == 0 && len(s.sandboxes) == 0 && !s.ending {
		s.ending = true
		close(s.end)
	}
}

// exitForReplacement ends the process so that another build can replace it, unless it serves other
// callers.
func (s *server) exitForReplacement() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sandboxes) > 0 || len(s.peers) > 1 {
		return fault.New(fault.Conflict, "causeway_busy", "the process is in use")
	}
	if !s.ending {
		s.ending = true
		close(s.end)
	}
	return nil
}

// reserve reserves a sandbox's name for the caller that attaches it.
func (s *server) reserve(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.sandboxes[id]; taken {
		return fault.Newf(fault.Exists, "network_attached", "the network of sandbox %s is attached", id)
	}
	if s.ending {
		return errGone
	}
	if len(s.sandboxes) >= maxSandboxes {
		return fault.Newf(fault.Exhausted, "causeway_full", "the egress gateway holds %d sandboxes, which is its limit", maxSandboxes)
	}
	s.sandboxes[id] = nil
	return nil
}

// storeOrRelease stores the sandbox, or releases its name if b is nil. It reports whether the
// process still runs.
func (s *server) storeOrRelease(id string, b *attachedSandbox) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b == nil || s.ending {
		delete(s.sandboxes, id)
		s.watchIdle()
		return false
	}
	s.sandboxes[id] = b
	return true
}

// find returns a sandbox that is attached.
func (s *server) find(id string) (*attachedSandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.sandboxes[id]; b != nil {
		return b, nil
	}
	return nil, fault.Newf(fault.Conflict, egress.CodeNotAttached, "the egress gateway holds no network of sandbox %q", id).
		WithHint("pause and resume the sandbox: it has a new network then")
}

// drop closes a sandbox's network and removes it. It may be called more than once.
func (s *server) drop(b *attachedSandbox, reason string) {
	b.close()
	s.mu.Lock()
	current := s.sandboxes[b.id] == b
	if current {
		delete(s.sandboxes, b.id)
		s.watchIdle()
	}
	s.mu.Unlock()
	if current {
		s.notify(Event{Sandbox: b.id, Kind: EventDetached, Reason: reason})
	}
}

// notify sends an event to all watching controllers. A controller that does not read delays the
// others once, for writeTimeout.
func (s *server) notify(e Event) {
	s.mu.Lock()
	var peers []*peer
	for p, c := range s.peers {
		c.mu.Lock()
		if c.events {
			peers = append(peers, p)
		}
		c.mu.Unlock()
	}
	s.mu.Unlock()
	for _, p := range peers {
		_ = p.notify(callEvent, e) // a controller that has disconnected needs no event
	}
}

func (s *server) list() listReply {
	s.mu.Lock()
	var sandboxes []*attachedSandbox
	for _, b := range s.sandboxes {
		if b != nil {
			sandboxes = append(sandboxes, b)
		}
	}
	s.mu.Unlock()
	reply := listReply{Sandboxes: []Status{}}
	for _, b := range sandboxes {
		reply.Sandboxes = append(reply.Sandboxes, b.status())
	}
	slices.SortFunc(reply.Sandboxes, func(a, b Status) int { return strings.Compare(a.Sandbox, b.Sandbox) })
	return reply
}
