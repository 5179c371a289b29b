// Package ingest brings events that engines and the egress gateway wrote to files into the audit
// log. Each sandbox has its own files, and each line becomes exactly one entry, also when a
// process dies in between. Form defines what the lines mean.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/crannog/crannog/internal/audit"
)

// suffix of every file: newline-delimited JSON.
const suffix = ".ndjson"

// Form is one kind of files and what their lines mean.
type Form struct {
	// Source begins the name under which positions are kept: "events" makes
	// "events/ID".
	Source string
	Dir    string
	// Read makes an entry of a line, with all that must not be seen hidden.
	// hide is nil if what to hide is not known. The line is not kept.
	Read func(line []byte, hide Hide) (Line, error)
	// Free, unless nil, gives back the space before an offset.
	Free func(f *os.File, before int64) error
}

// Hide masks a text.
type Hide func(string) string

// Line is what a line says.
type Line struct {
	// Seq numbers the lines of one file: a number that is left out is a line
	// that was lost.
	Seq uint64
	// Draft is the entry; its place is filled in. Silent lines make none.
	Draft  audit.Draft
	Silent bool
}

// Options say what to take in. All are required.
type Options struct {
	Record audit.Recorder
	// Forms are the kinds of files. The first is the one that Create makes.
	Forms []Form
	// Hide finds what must not be seen of a sandbox's lines. After an error
	// what could show it is left out.
	Hide func(ctx context.Context, sandbox string) (Hide, error)
	Log  *slog.Logger
}

// Spools takes in the files of any number of sandboxes. Several processes may
// do so at once with the same files.
type Spools struct {
	o     Options
	nonce nonce // tells this process from all others
	watch *watch
	ctx   context.Context
	stop  context.CancelFunc
	loops sync.WaitGroup

	mu    sync.Mutex
	tails map[string]*tail
	made  map[string]bool // the sandboxes whose files are new and were never read
}

// Open makes the directories and begins to watch them. Close ends it.
func Open(o Options) (*Spools, error) {
	if o.Record == nil || len(o.Forms) == 0 || o.Hide == nil || o.Log == nil {
		return nil, errors.New("open spools: an option is missing")
	}
	s := &Spools{o: o, nonce: newNonce(), tails: make(map[string]*tail), made: make(map[string]bool)}
	dirs := make([]string, len(o.Forms))
	for i, f := range o.Forms {
		if err := os.MkdirAll(f.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("open spools: %w", err)
		}
		dirs[i] = f.Dir
	}
	var err error
	if s.watch, err = newWatch(dirs); err != nil {
		return nil, fmt.Errorf("open spools: %w", err)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.loops.Go(s.listen)
	return s, nil
}

// Close stops taking in. What is left in the files is taken in by the next.
func (s *Spools) Close() error {
	s.stop()
	err := s.watch.close()
	s.loops.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range s.tails {
		err = errors.Join(err, t.close())
		delete(s.tails, id)
	}
	return err
}

// listen wakes the tails whose files have changed.
func (s *Spools) listen() {
	err := s.watch.run(func(file string) {
		id, ok := strings.CutSuffix(file, suffix)
		s.mu.Lock()
		defer s.mu.Unlock()
		if file == "" { // the kernel has lost count
			for _, t := range s.tails {
				t.rouse()
			}
			return
		}
		if t := s.tails[id]; ok && t != nil {
			t.rouse()
		}
	})
	if err != nil && s.ctx.Err() == nil {
		s.o.Log.Error("spools are not watched any more", "err", err)
	}
}

// Follow takes in a sandbox's lines as they are written, from the first that
// is not in the record, until Leave.
func (s *Spools) Follow(sandbox string) {
	s.mu.Lock()
	t, err := s.tail(sandbox)
	if err == nil && !t.following && s.ctx.Err() == nil {
		t.following = true
		t.loop.Go(t.follow)
		t.rouse()
	}
	s.mu.Unlock()
	if err != nil {
		s.o.Log.Error("spool not followed", "sandbox", sandbox, "err", err)
	}
}

// tail is the one of a sandbox. s.mu must be held.
func (s *Spools) tail(sandbox string) (*tail, error) {
	if t := s.tails[sandbox]; t != nil {
		return t, nil
	}
	t := &tail{s: s, sandbox: sandbox, wake: make(chan struct{}, 1)}
	t.ctx, t.stop = context.WithCancel(s.ctx)
	fresh := s.made[sandbox]
	delete(s.made, sandbox)
	for _, f := range s.o.Forms {
		path, err := s.path(f, sandbox)
		if err != nil {
			return nil, err
		}
		t.files = append(t.files, &file{form: f, path: path, sandbox: sandbox, source: f.Source + "/" + sandbox, known: fresh})
	}
	s.tails[sandbox] = t
	return t, nil
}

// Drain ingests all that a sandbox's files hold now. With last, the files have no writer any
// more, and an incomplete line at the end counts as lost.
func (s *Spools) Drain(ctx context.Context, sandbox string, last bool) error {
	s.mu.Lock()
	t, err := s.tail(sandbox)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return t.take(ctx, last)
}

// Exclusive does something about a sandbox's place in the record while no
// other process does. again is true if one has begun to before, for the same
// end, and how far it came is not known.
func (s *Spools) Exclusive(ctx context.Context, sandbox string, do func(again bool) error) error {
	s.mu.Lock()
	t, err := s.tail(sandbox)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.locked(ctx, func() error {
		again, err := t.mark.end()
		if err != nil {
			return err
		}
		return do(again)
	})
}

// Leave stops following a sandbox.
func (s *Spools) Leave(sandbox string) error {
	s.mu.Lock()
	t := s.tails[sandbox]
	delete(s.tails, sandbox)
	s.mu.Unlock()
	if t == nil {
		return nil
	}
	return t.close()
}
