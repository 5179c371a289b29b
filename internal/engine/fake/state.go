package fake

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// Steps at which saving and going on can be made to fail.
const (
	CheckpointBegin Step = "checkpoint-begin" // nothing is done
	CheckpointSaved Step = "checkpoint-saved" // the state is written
	ArchiveBegin    Step = "archive-begin"    // nothing is done
	ArchiveSaved    Step = "archive-saved"    // the files are written
	ExtractBegin    Step = "extract-begin"    // nothing is done
	ExtractSaved    Step = "extract-saved"    // the files are written
	RestoreBegin    Step = "restore-begin"    // nothing is done; what follows are the steps of Create
	ReplaceBegin    Step = "replace-begin"    // nothing is done
	ReplaceReady    Step = "replace-ready"    // the new guest has answered, the old one runs
	ReplaceStop     Step = "replace-stop"     // the old one is stopped: neither is left
)

// StateSteps lists these steps in order.
var StateSteps = []Step{CheckpointBegin, CheckpointSaved, ArchiveBegin, ArchiveSaved, ExtractBegin, ExtractSaved, RestoreBegin, ReplaceBegin, ReplaceReady, ReplaceStop}

var (
	_ engine.Checkpointer = (*Engine)(nil)
	_ engine.Archiver     = (*Engine)(nil)
)

// imageFiles are what a state consists of, under the names of the real one.
var imageFiles = []string{"checkpoint.img", "pages_meta.img", "pages.img"}

// State is what a sandbox has in memory and in files. It stands for what
// programs would have there.
type State struct {
	mu     sync.Mutex
	memory map[string]string
	files  map[string]string
}

type saved struct{ Memory, Files map[string]string }

// Remember puts a value in memory, which only saved memory keeps.
func (s *State) Remember(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory[key] = value
}

// Memory returns a value, or "".
func (s *State) Memory(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory[key]
}

// Write makes a file.
func (s *State) Write(name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name] = text
}

// File returns what a file holds, or "".
func (s *State) File(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[name]
}

func newState() *State { return &State{memory: map[string]string{}, files: map[string]string{}} }

func (s *State) copy() saved {
	s.mu.Lock()
	defer s.mu.Unlock()
	return saved{maps.Clone(s.memory), maps.Clone(s.files)}
}

// State is a sandbox's, or nil for one that does not run.
func (e *Engine) State(id string) *State {
	if b := e.find(id); b != nil && b.running() {
		return b.state
	}
	return nil
}

// Restores implements engine.Checkpointer.
func (e *Engine) Restores(format string) bool { return format == e.Format() }

// Format implements engine.Checkpointer.
func (e *Engine) Format() string {
	if e.options.Format != "" {
		return e.options.Format
	}
	return "fake/1"
}

// Checkpoint implements engine.Checkpointer.
func (e *Engine) Checkpoint(ctx context.Context, id, dir string) error {
	if err := e.at(ctx, CheckpointBegin, id); err != nil {
		return err
	}
	b := e.find(id)
	if b == nil || !b.running() {
		return unknown(id)
	}
	data, err := json.Marshal(b.state.copy())
	if err != nil {
		return err
	}
	for _, name := range imageFiles {
		if err := writeNew(filepath.Join(dir, name), data); err != nil {
			return fmt.Errorf("checkpoint %s: %w", id, err)
		}
	}
	return e.at(ctx, CheckpointSaved, id)
}

func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// load reads a state of memory, or with dir "" an archive, or neither.
func load(spec engine.Spec, dir string) (*State, error) {
	s := newState()
	if dir != "" {
		data, err := os.ReadFile(filepath.Join(dir, imageFiles[0]))
		if err != nil {
			return nil, err
		}
		var kept saved
		if err := json.Unmarshal(data, &kept); err != nil {
			return nil, err
		}
		s.memory, s.files = kept.Memory, kept.Files
		return s, nil
	}
	if spec.Archive == nil {
		return s, nil
	}
	r := tar.NewReader(io.NewSectionReader(spec.Archive, 0, 1<<40))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		s.files[h.Name] = string(text)
	}
}

// Archive implements engine.Archiver.
func (e *Engine) Archive(ctx context.Context, id string, w *os.File) error {
	if err := e.at(ctx, ArchiveBegin, id); err != nil {
		return err
	}
	b := e.find(id)
	if b == nil || !b.running() {
		return unknown(id)
	}
	if err := pack(b.state, w); err != nil {
		return err
	}
	return e.at(ctx, ArchiveSaved, id)
}

// Extract implements engine.Archiver.
func (e *Engine) Extract(ctx context.Context, spec engine.Spec, dir string, w *os.File) error {
	if err := e.at(ctx, ExtractBegin, spec.ID); err != nil {
		return err
	}
	s, err := load(spec, dir)
	if err != nil {
		return err
	}
	if err := pack(s, w); err != nil {
		return err
	}
	return e.at(ctx, ExtractSaved, spec.ID)
}

// pack writes the files of a state as a tar.
func pack(s *State, w io.Writer) error {
	kept := s.copy().Files
	t := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(kept[name])), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := io.WriteString(t, kept[name]); err != nil {
			return err
		}
	}
	return t.Close()
}

// Restore implements engine.Checkpointer.
func (e *Engine) Restore(ctx context.Context, spec engine.Spec, dir string) error {
	if err := e.at(ctx, RestoreBegin, spec.ID); err != nil {
		return err
	}
	return e.create(ctx, spec, dir)
}

// Replace implements engine.Checkpointer.
func (e *Engine) Replace(ctx context.Context, spec engine.Spec, dir string) error {
	if err := e.at(ctx, ReplaceBegin, spec.ID); err != nil {
		return err
	}
	if err := spec.Egress.Check(e.Info().Egress); err != nil {
		return err
	}
	old := e.find(spec.ID)
	if old == nil || !old.running() {
		return unknown(spec.ID)
	}
	b, err := e.serve(spec, dir)
	if err != nil {
		return fmt.Errorf("replace %s: %w", spec.ID, err)
	}
	drop := func() { b.stop(engine.Exit{Reason: engine.ReasonKilled, At: time.Now()}) }
	if err := b.answers(ctx); err != nil {
		drop()
		return fmt.Errorf("replace %s: guest: %w", spec.ID, err)
	}
	if err := e.at(ctx, ReplaceReady, spec.ID); err != nil {
		drop()
		return err
	}
	e.world.mu.Lock()
	e.world.boxes[spec.ID] = b
	e.world.mu.Unlock()
	old.stop(engine.Exit{Reason: engine.ReasonKilled, At: time.Now()})
	if err := e.at(ctx, ReplaceStop, spec.ID); err != nil {
		drop()
		if e.find(spec.ID) == b {
			e.take(spec.ID)
			err = errors.Join(err, os.RemoveAll(e.dir(spec.ID)))
		}
		return fault.Wrap(err, fault.Internal, "replace_failed", "the sandbox could not be replaced")
	}
	return nil
}
