package interpreter

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"strings"
)

// Renewal describes the effects of a new configuration of the sandbox on its contexts. Options.Env
// returns the new variables.
type Renewal struct {
	// Home is the working directory of contexts that name none.
	Home string
	// Fresh is set if another sandbox continues, or has continued, from the same state: random
	// values from now on must differ.
	Fresh bool
}

// Renew adopts a new configuration. A worker that is idle after running a user's code is told now;
// one that runs code, or waits for its first, is told before the next request.
func (s *Server) Renew(r Renewal) {
	s.mu.Lock()
	before := s.home
	s.home = r.Home
	s.renewals++
	if r.Fresh {
		s.draws++
	}
	sessions := slices.Clone(s.sessions)
	s.mu.Unlock()
	for _, sess := range sessions {
		sess.move(before, r.Home)
		if r.Fresh {
			sess.renewIdle()
		}
	}
}

// Sever lets the running code continue without its client: the connections are about to be cut
// because the sandbox was saved and continues in another instance, not because the client has left.
// The code's output is dropped.
func (s *Server) Sever() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.severed)
	s.severed = make(chan struct{})
}

// severance returns the channel that the next Sever closes.
func (s *Server) severance() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.severed
}

// renewalCounts counts the renewals that a worker was told, and those that were fresh.
type renewalCounts struct{ renewals, draws int }

func (s *Server) renewalState() renewalCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return renewalCounts{s.renewals, s.draws}
}

// renewal is the message to a worker. Numbers stand for booleans, because the Python worker reads
// no others.
type renewal struct {
	Env map[string]change `json:"env,omitempty"`
	Dir *change           `json:"dir,omitempty"`
	// Seed is nonzero if random streams begin anew. A worker that cannot draw a seed of its own
	// uses it.
	Seed uint32 `json:"seed,omitempty"`
}

// change takes effect unless code has changed the same thing. Nil means unset.
type change struct {
	From *string `json:"from,omitempty"`
	To   *string `json:"to,omitempty"`
}

// changes are the differences between two environments.
func changes(from, to map[string]string) map[string]change {
	all := map[string]change{}
	for k, v := range from {
		if now, ok := to[k]; !ok {
			all[k] = change{From: &v}
		} else if now != v {
			all[k] = change{From: &v, To: &now}
		}
	}
	for k, v := range to {
		if _, ok := from[k]; !ok {
			all[k] = change{To: &v}
		}
	}
	return all
}

// early reports whether interpreters, their libraries or the loader read a variable only at their
// start.
func early(name string) bool {
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

// renew prepares what a worker has to be told before another request. It returns false for an
// unused worker that would have started differently: a new one replaces it, and no state is lost.
// The slot must be held.
func (x *session) renew(w *worker) bool {
	now := x.server.renewalState()
	if w.told == now {
		return true
	}
	env := x.server.opts.Env()
	r := renewal{Env: changes(w.env, env)}
	if w.executions == 0 {
		for name := range r.Env {
			if early(name) {
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
	if w.told.draws != now.draws {
		r.Seed = seed()
	}
	w.env, w.told = env, now
	if len(r.Env) > 0 || r.Dir != nil || r.Seed != 0 {
		w.first = append(w.first, w.lang.encode(request{Renew: &r})...)
	}
	return true
}

// seed returns a random number other than 0.
func seed() uint32 {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return max(1, binary.NativeEndian.Uint32(b[:]))
}

// renewIdle tells a worker now that would otherwise be told only before its next use: code that it
// left running may draw random values too.
func (x *session) renewIdle() {
	select {
	case x.slot <- struct{}{}:
	default:
		return // the next request does it
	}
	w := x.worker
	if w == nil || !w.alive() || w.executions == 0 || !x.renew(w) {
		x.release()
		return
	}
	x.server.workers.Go(func() {
		defer x.release()
		// It fails only when the worker is gone.
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

func (x *session) directory() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.dir
}
