// Package ingest owns copying events from files of engines and the egress gateway into the audit
// log. Each sandbox has its own files. Each line becomes exactly one entry, even if a process is
// killed in between. A Form defines the meaning of the lines.
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

// suffix is the suffix of the files: newline-delimited JSON.
const suffix = ".ndjson"

// Form is a kind of file and the meaning of its lines.
type Form struct {
	// Source is the prefix of the name under which positions are stored: "events" results in
	// "events/ID".
	Source string
	Dir    string
	// Read converts a line to an entry and redacts it with hide. hide is nil if the values to
	// redact are not known. Read must not retain the line.
	Read func(line []byte, hide Redact) (Line, error)
	// Free, if not nil, releases the disk space before an offset.
	Free func(f *os.File, before int64) error
}

// Redact redacts a text.
type Redact func(string) string

// Line is a parsed line.
type Line struct {
	// Seq numbers the lines of one file. A missing number is a lost line.
	Seq uint64
	// Draft is the entry without its position. Lines with Silent set result in no entry.
	Draft  audit.Draft
	Silent bool
}

// Options configure Open. All are required.
type Options struct {
	Audit audit.Recorder
	// Forms are the kinds of files. Create creates a file of the first one.
	Forms []Form
	// Redact returns the redactor for a sandbox's lines. If it fails, text that could contain
	// secrets is omitted.
	Redact func(ctx context.Context, sandbox string) (Redact, error)
	Log    *slog.Logger
}

// Ingester ingests the files of any number of sandboxes. Several processes may ingest the same
// files concurrently.
type Ingester struct {
	o     Options
	nonce nonce // identifies this process
	watch *watch
	ctx   context.Context
	stop  context.CancelFunc
	loops sync.WaitGroup

	mu    sync.Mutex
	tails map[string]*tail
	fresh map[string]bool // sandboxes whose files are new and unread
}

// Open creates the directories and starts watching them, until Close.
func Open(o Options) (*Ingester, error) {
	if o.Audit == nil || len(o.Forms) == 0 || o.Redact == nil || o.Log == nil {
		return nil, errors.New("open event files: an option is missing")
	}
	s := &Ingester{o: o, nonce: newNonce(), tails: make(map[string]*tail), fresh: make(map[string]bool)}
	dirs := make([]string, len(o.Forms))
	for i, f := range o.Forms {
		if err := os.MkdirAll(f.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("open event files: %w", err)
		}
		dirs[i] = f.Dir
	}
	var err error
	if s.watch, err = newWatch(dirs); err != nil {
		return nil, fmt.Errorf("open event files: %w", err)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.loops.Go(s.listen)
	return s, nil
}

// Close stops ingesting. The next process ingests the remaining lines.
func (s *Ingester) Close() error {
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
func (s *Ingester) listen() {
	err := s.watch.run(func(file string) {
		id, ok := strings.CutSuffix(file, suffix)
		s.mu.Lock()
		defer s.mu.Unlock()
		if file == "" { // the kernel's queue overflowed
			for _, t := range s.tails {
				t.notify()
			}
			return
		}
		if t := s.tails[id]; ok && t != nil {
			t.notify()
		}
	})
	if err != nil && s.ctx.Err() == nil {
		s.o.Log.Error("event files are not watched any more", "err", err)
	}
}

// Follow ingests a sandbox's lines as they are written, starting with the first one that is not in
// the audit log, until Leave.
func (s *Ingester) Follow(sandbox string) {
	s.mu.Lock()
	t, err := s.tail(sandbox)
	if err == nil && !t.following && s.ctx.Err() == nil {
		t.following = true
		t.loop.Go(t.follow)
		t.notify()
	}
	s.mu.Unlock()
	if err != nil {
		s.o.Log.Error("event file not followed", "sandbox", sandbox, "err", err)
	}
}

// tail returns the tail of a sandbox. The caller holds s.mu.
func (s *Ingester) tail(sandbox string) (*tail, error) {
	if t := s.tails[sandbox]; t != nil {
		return t, nil
	}
	t := &tail{s: s, sandbox: sandbox, wake: make(chan struct{}, 1)}
	t.ctx, t.stop = context.WithCancel(s.ctx)
	fresh := s.fresh[sandbox]
	delete(s.fresh, sandbox)
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

// Drain ingests all lines that are now in a sandbox's files. last means that the files have no
// writer any more. Then an incomplete last line counts as lost.
func (s *Ingester) Drain(ctx context.Context, sandbox string, last bool) error {
	s.mu.Lock()
	t, err := s.tail(sandbox)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return t.take(ctx, last)
}

// Exclusive calls do while no other process handles the end of the sandbox. again reports whether a
// process has called do before, and may have been interrupted.
func (s *Ingester) Exclusive(ctx context.Context, sandbox string, do func(again bool) error) error {
	s.mu.Lock()
	t, err := s.tail(sandbox)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.locked(ctx, func() error {
		again, err := t.mark.setEnding()
		if err != nil {
			return err
		}
		return do(again)
	})
}

// Leave stops following a sandbox.
func (s *Ingester) Leave(sandbox string) error {
	s.mu.Lock()
	t := s.tails[sandbox]
	delete(s.tails, sandbox)
	s.mu.Unlock()
	if t == nil {
		return nil
	}
	return t.close()
}
