package interpreter

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
)

// session is a context of the protocol. Executions in it run one after the other and share state.
type session struct {
	server *Server
	id     string
	lang   *language
	// slot is a lock for the worker. A goroutine acquires it by sending a value and releases it by
	// receiving the value.
	slot chan struct{}
	// gone is closed when the context is removed.
	gone chan struct{}
	// worker runs the code. It may be nil. The slot guards it.
	worker *worker

	mu      sync.Mutex
	dir     string
	abort   func(execError) // ends the current execution, or nil
	removed bool
}

func (s *Server) newSession(lang *language, dir string) *session {
	return &session{
		server: s, id: newID(), lang: lang, dir: dir,
		slot: make(chan struct{}, 1), gone: make(chan struct{}),
	}
}

// newID returns a random UUID, which is the context's ID for clients.
func newID() string {
	b := ids.NewUUID()
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// list returns all contexts.
func (s *Server) list() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sessions)
}

// find returns a context by its ID.
func (s *Server) find(id string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sess := range s.sessions {
		if sess.id == id {
			return sess, nil
		}
	}
	return nil, fault.Newf(fault.NotFound, "context_not_found", "Context %s not found", truncate(id, 60))
}

// byLanguage returns the default context of a language.
func (s *Server) byLanguage(name string) (*session, error) {
	lang, err := s.findLanguage(name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sess, ok := s.defaults[lang.name]; ok {
		return sess, nil
	}
	sess := s.newSession(lang, s.home)
	if err := s.add(sess); err != nil {
		return nil, err
	}
	s.defaults[lang.name] = sess
	return sess, nil
}

// create creates a context and starts its worker at once, so that errors are reported now and the
// first execution is fast.
func (s *Server) create(ctx context.Context, language, dir string) (*session, error) {
	lang, err := s.findLanguage(language)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if dir == "" {
		dir = s.home
	}
	sess := s.newSession(lang, dir)
	err = s.add(sess)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := sess.restart(ctx); err != nil {
		sess.close()
		return nil, err
	}
	return sess, nil
}

// add adds a context to the list. s.mu must be held.
func (s *Server) add(sess *session) error {
	if s.life.Err() != nil {
		return errClosed
	}
	if len(s.sessions) >= maxContexts {
		return fault.Newf(fault.Exhausted, "too_many_contexts", "There are %d contexts already. Remove some.", maxContexts)
	}
	s.sessions = append(s.sessions, sess)
	return nil
}

// errClosed is returned after Close.
var errClosed = fault.New(fault.Unavailable, "interpreter_closed", "The code interpreter is shutting down.")

// acquire waits for the slot. While it waits, it calls keepalive, which sends a line to the client
// and returns the time until the next call.
func (x *session) acquire(ctx context.Context, keepalive func() time.Duration) error {
	timer := time.NewTimer(x.server.pace.keepalive)
	defer timer.Stop()
	for {
		select {
		case x.slot <- struct{}{}:
			return x.checkExists()
		case <-x.gone:
			return fault.Newf(fault.NotFound, "context_not_found", "Context %s not found", x.id)
		case <-x.server.life.Done():
			return errClosed
		case <-ctx.Done():
			return fault.New(fault.Canceled, "canceled", "The request was canceled.")
		case <-timer.C:
			timer.Reset(keepalive())
		}
	}
}

// checkExists releases the slot and returns an error if the context has been removed.
func (x *session) checkExists() error {
	select {
	case <-x.gone:
		x.release()
		return fault.Newf(fault.NotFound, "context_not_found", "Context %s not found", x.id)
	default:
		return nil
	}
}

// release releases the slot.
func (x *session) release() { <-x.slot }

// liveWorker returns the worker. If there is none or it has ended, liveWorker starts a new one. The
// slot must be held.
func (x *session) liveWorker(ctx context.Context) (*worker, error) {
	if x.worker != nil && x.worker.alive() && x.renew(x.worker) {
		return x.worker, nil
	}
	x.stop()
	w, err := x.server.startWorker(ctx, x.lang, x.directory())
	if err != nil {
		return nil, err
	}
	x.worker = w
	return w, nil
}

// stop ends the worker. The slot must be held.
func (x *session) stop() {
	if x.worker != nil {
		x.worker.kill()
		x.worker = nil
	}
}

// interruptWith ends the running execution, if any, with an error.
func (x *session) interruptWith(e execError) {
	x.mu.Lock()
	abort := x.abort
	x.mu.Unlock()
	if abort != nil {
		abort(e)
	}
}

// restart replaces the worker by a new one, without state.
func (x *session) restart(ctx context.Context) error {
	x.interruptWith(execError{Name: "ContextRestarting", Value: "The context was restarted while the code ran."})
	if err := x.acquire(ctx, func() time.Duration { return time.Hour }); err != nil {
		return err
	}
	defer x.release()
	x.stop()
	_, err := x.liveWorker(ctx)
	return err
}

// close removes the context and waits until its worker has ended.
func (x *session) close() {
	x.unlist()
	x.mu.Lock()
	if !x.removed {
		x.removed = true
		close(x.gone)
	}
	x.mu.Unlock()
	x.interruptWith(execError{Name: "ExecutionAborted", Value: "The context was removed while the code ran."})
	x.slot <- struct{}{}
	x.stop()
	x.release()
}

// unlist removes the context from the list.
func (x *session) unlist() {
	s := x.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = slices.DeleteFunc(s.sessions, func(other *session) bool { return other == x })
	if s.defaults[x.lang.name] == x {
		delete(s.defaults, x.lang.name)
	}
}
