package interpreter

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"strings"
)

// Renewal describes how a new configuration of the sandbox affects its contexts. Options.Env
// returns the new variables.
type Renewal struct {
	// Home is the working directory of contexts that name none.
	Home string
	// Fresh is set if another sandbox continues, or has continued, from the same state. Random
	// values must then differ.
	Fresh bool
}

// Renew applies a new configuration. An idle worker that has run a user's code is notified at once.
// A worker that is running code, or has run none, is notified before the next request.
func (s *Server) Renew(r Renewal) {
	s.mu.Lock()
	oldHome := s.home
	s.home = r.Home
	s.renewals++
	if r.Fresh {
		s.freshRenewals++
	}
	sessions := slices.Clone(s.sessions)
	s.mu.Unlock()
	for _, sess := range sessions {
		sess.move(oldHome, r.Home)
		if r.Fresh {
			sess.renewIdle()
		}
	}
}

// Sever marks the connections of running code as closed by the sandbox. It is called before they
// are closed, after the sandbox was saved and continues in another instance. The code then
// continues and its output is discarded, whereas code whose client disconnects is interrupted.
func (s *Server) Sever() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cutOff)
	s.cutOff = make(chan struct{})
}

// cutOffChannel returns the channel that the next call of Sever closes.
func (s *Server) cutOffChannel() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cutOff
}

// renewalCounts has the number of renewals that a worker knows, and how many of them were fresh.
type renewalCounts struct{ renewals, freshRenewals int }

// renewalState returns the current number of renewals.
func (s *Server) renewalState() renewalCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return renewalCounts{s.renewals, s.freshRenewals}
}

// renewal is the message to a worker. It has numbers in place of booleans, because the Python
// worker parses only numbers.
type renewal struct {
	Env map[string]change `json:"env,omitempty"`
	Dir *change           `json:"dir,omitempty"`
	// Seed is nonzero if random generators must be reseeded. A worker that cannot obtain a seed
	// itself uses this one.
	Seed uint32 `json:"seed,omitempty"`
}

// change is the change of a variable or of the working directory. It does not apply if code has
// changed the value itself. Nil means unset.
type change struct {
	From *string `json:"from,omitempty"`
	To   *string `json:"to,omitempty"`
}

// changes returns the differences between two environments.
func changes(from, to map[string]string) map[string]change {
	all := map[string]change{}
	for k, v := range from {
		if value, ok := to[k]; !ok {
			all[k] = change{From: &v}
		} else if value != v {
			all[k] = change{From: &v, To: &value}
		}
	}
	for k, v := range to {
		if _, ok := from[k]; !ok {
			all[k] = change{To: &v}
		}
	}
	return all
}

// isReadAtStart reports whether interpreters, their libraries or the dynamic loader read a variable
// only when they start.
func isReadAtStart(name string) bool {
	switch name {
	case "PATH", "HOME", "USER", "LOGNAME", "TZ", "LANG", "LANGUAGE", "NO_COLOR", "TMPDIR":
		return true
	}
	for _, prefix := range []string{"PYTHON", "NODE_", "LD_", "LC_", "MPL", "OMP_", "OPENBLAS_", "MKL_", "NUMEXPR_", "NPY_", "BLIS_", "GLIBC_", "MALLOC_", "BASH", "SSL_", "OPENSSL_", "UV_", "XDG_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// renew prepares the notification that a worker needs before another request. It returns false for
// an unused worker that would have started differently. A new worker then replaces it, and no state
// is lost. The slot must be held.
func (x *session) renew(w *worker) bool {
	now := x.server.renewalState()
	if w.notified == now {
		return true
	}
	env := x.server.opts.Env()
	r := renewal{Env: changes(w.env, env)}
	if w.executions == 0 {
		for name := range r.Env {
			if isReadAtStart(name) {
				return false
			}
		}
		if dir := x.directory(); dir != w.dir {
			if checkDir(dir) != nil {
				return false
			}
			from := w.dir
			r.Dir, w.dir = &change{From: &from, To: &dir}, dir
		}
	}
	if w.notified.freshRenewals != now.freshRenewals {
		r.Seed = seed()
	}
	w.env, w.notified = env, now
	if len(r.Env) > 0 || r.Dir != nil || r.Seed != 0 {
		w.pending = append(w.pending, w.lang.encode(request{Renew: &r})...)
	}
	return true
}

// seed returns a random number other than 0.
func seed() uint32 {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return max(1, binary.NativeEndian.Uint32(b[:]))
}

// renewIdle notifies an idle worker now instead of before its next use, because its background code
// may use random values too.
func (x *session) renewIdle() {
	select {
	case x.slot <- struct{}{}:
	default:
		return // the next request notifies the worker
	}
	w := x.worker
	if w == nil || !w.alive() || w.executions == 0 || !x.renew(w) {
		x.release()
		return
	}
	x.server.workers.Go(func() {
		defer x.release()
		// An error means that the worker has ended.
		_ = w.flush()
	})
}

// move changes the directory of a context that was in the home directory.
func (x *session) move(from, to string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dir == from {
		x.dir = to
	}
}

// directory returns the working directory of the context.
func (x *session) directory() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.dir
}
