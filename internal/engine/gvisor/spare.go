package gvisor

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/engine"
)

// resumePatience bounds how long a box may take to go on that was to be
// replaced.
const resumePatience = 5 * time.Second

// spareDir is the beginning of a spare kernel's directory, which no box's ID
// can be. The kernel's name follows, and the process that makes it: it may be
// killed before it writes a record.
const spareDir = "spare-"

// Names of kernels begin with what they are for.
const (
	startingName = "k" // a box that goes on at once
	waitingName  = "w" // whichever will
)

// refillAfter is how long after a spare kernel was taken the next one is made.
const refillAfter = 250 * time.Millisecond

// spareTime bounds the making of a spare kernel.
const spareTime = time.Minute

// spares are kernels that wait for a box to go on in them.
type spares struct {
	mu     sync.Mutex
	kind   string // of which kind are wanted
	spec   engine.Spec
	want   int
	have   []*kernel
	making bool
	later  *time.Timer // makes the next one; nil if none is due
	closed bool
	done   sync.WaitGroup
}

// bare is a specification without what is given to a box only when it starts.
func bare(spec engine.Spec) engine.Spec {
	spec.ID, spec.Hostname, spec.GuestConfig, spec.Link, spec.Archive = "", "", nil, nil, nil
	spec.Events, spec.EventBytes, spec.Unhurried = nil, 0, false
	return spec
}

// kindOf names all that cannot change once a kernel is made.
func kindOf(spec engine.Spec) string {
	data, err := json.Marshal(bare(spec))
	if err != nil {
		return "" // of no kind, so never spared
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Warm implements engine.Warmer.
func (e *Engine) Warm(spec engine.Spec, n int) {
	spec.Limits = spec.Limits.OrDefault()
	kind := kindOf(spec)
	s := &e.spares
	s.mu.Lock()
	defer s.mu.Unlock()
	var drop []*kernel
	if n <= 0 || kind != s.kind {
		drop, s.have = s.have, nil
	} else if len(s.have) > n {
		drop, s.have = s.have[n:], s.have[:n]
	}
	s.kind, s.spec, s.want = kind, spec, max(n, 0)
	if len(drop) > 0 {
		s.done.Go(func() {
			for _, k := range drop {
				k.discard()
			}
		})
	}
	if s.later == nil {
		e.refill()
	}
}

// Spares is how many spare kernels wait.
func (e *Engine) Spares() int {
	e.spares.mu.Lock()
	defer e.spares.mu.Unlock()
	return len(e.spares.have)
}

// refill makes spare kernels, one after the other, until there are as many as
// are wanted. e.spares.mu must be held.
func (e *Engine) refill() {
	s := &e.spares
	if s.making || s.closed || len(s.have) >= s.want || s.kind == "" {
		return
	}
	s.making = true
	spec, kind := s.spec, s.kind
	s.done.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), spareTime)
		defer cancel()
		k, err := e.unhurriedSpare(ctx, spec)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.making = false
		switch {
		case err != nil:
			e.log.Warn("no spare kernel", "err", err)
			s.want = 0 // until somebody asks again
		case s.closed || kind != s.kind || len(s.have) >= s.want:
			s.done.Go(k.discard)
		default:
			s.have = append(s.have, k)
			e.log.Debug("spare kernel waits", "kernel", k.b.rec.Kernel)
		}
		e.refill()
	})
}

// refillLater makes the next spare kernel when whoever took one has used it:
// making one takes as much of the processors as the box that goes on in it.
// e.spares.mu must be held.
func (e *Engine) refillLater() {
	s := &e.spares
	if s.later != nil || s.closed {
		return
	}
	s.later = time.AfterFunc(refillAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.later = nil
		e.refill()
	})
}

// newSpare makes a kernel in a directory of its own.
func (e *Engine) newSpare(ctx context.Context, spec engine.Spec) (*kernel, error) {
	return e.newSpareOn(ctx, running, spec)
}

// newSpareOn is newSpare for a platform.
func (e *Engine) newSpareOn(ctx context.Context, platform string, spec engine.Spec) (*kernel, error) {
	use := startingName
	if spec.Unhurried {
		use = waitingName
	}
	name := use + strings.ToLower(rand.Text()[:19])
	spec.Limits = spec.Limits.OrDefault()
	return e.newKernelOn(ctx, platform, spec, name, filepath.Join(e.dir, spareDir+name+processOf(os.Getpid()).suffix()))
}

// unhurriedSpare makes one for which nobody waits.
func (e *Engine) unhurriedSpare(ctx context.Context, spec engine.Spec) (*kernel, error) {
	spec.Unhurried = true
	k, err := e.newSpare(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := k.yield(false); err != nil {
		k.discard()
		return nil, err
	}
	return k, nil
}

// takeSpare returns a spare kernel that fits and lives, or nil.
func (e *Engine) takeSpare(spec engine.Spec) *kernel {
	kind := kindOf(spec)
	s := &e.spares
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind != s.kind {
		return nil
	}
	for len(s.have) > 0 {
		k := s.have[0]
		s.have = s.have[1:]
		e.refillLater()
		if k.b.rec.Sentry.alive() {
			e.log.Debug("spare kernel taken", "kernel", k.b.rec.Kernel, "sandbox", spec.ID)
			return k
		}
		s.done.Go(k.discard)
	}
	return nil
}

// Close drops the spare kernels. Boxes go on.
func (e *Engine) Close() error {
	s := &e.spares
	s.mu.Lock()
	s.closed, s.want = true, 0
	if s.later != nil {
		s.later.Stop()
	}
	drop := s.have
	s.have = nil
	s.mu.Unlock()
	for _, k := range drop {
		k.discard()
	}
	s.done.Wait()
	return nil
}

// sweepSpares removes kernels and replaced boxes whose process is dead.
func (e *Engine) sweepSpares() {
	entries, err := os.ReadDir(e.dir)
	if err != nil {
		return // List tells
	}
	for _, entry := range entries {
		name, ok := strings.CutPrefix(entry.Name(), spareDir)
		if !ok {
			continue
		}
		dir := filepath.Join(e.dir, entry.Name())
		rec, err := readRecord(dir)
		if err != nil {
			// One that is being made has no record for a moment.
			kernel, maker := cutSuffix(name)
			rec = record{ID: kernel, Kernel: kernel, Creator: maker}
		}
		if rec.Creator.alive() {
			continue
		}
		if err != nil && e.names(entries, rec.Kernel) {
			// It held what a box was before it was put back, whose kernel of
			// now came from here and has the name. It must not be ended.
			err = removeDir(dir)
		} else {
			err = newBox(e, rec, dir).destroy()
		}
		if err != nil {
			e.log.Error("spare kernel not removed", "kernel", rec.Kernel, "err", fmt.Errorf("%s: %w", dir, err))
		}
	}
}

// names tells whether a box among entries is recorded to have a kernel.
func (e *Engine) names(entries []os.DirEntry, kernel string) bool {
	return slices.ContainsFunc(entries, func(entry os.DirEntry) bool {
		rec, err := readRecord(filepath.Join(e.dir, entry.Name()))
		return err == nil && rec.Kernel == kernel
	})
}
