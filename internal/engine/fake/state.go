package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// Steps at which saving and restoring can be made to fail.
const (
	CheckpointBegin Step = "checkpoint-begin" // nothing has been done
	CheckpointSaved Step = "checkpoint-saved" // the state is written
	ArchiveBegin    Step = "archive-begin"    // nothing has been done
	ArchiveSaved    Step = "archive-saved"    // the files are written
	ExtractBegin    Step = "extract-begin"    // nothing has been done
	ExtractSaved    Step = "extract-saved"    // the files are written
	RestoreBegin    Step = "restore-begin"    // nothing has been done; the steps of Create follow
	ReplaceBegin    Step = "replace-begin"    // nothing has been done
	ReplaceReady    Step = "replace-ready"    // the new guest has answered, the old guest still runs
	ReplaceStop     Step = "replace-stop"     // the old guest is stopped; if this step fails, neither runs
)

// StateSteps lists these steps in order.
var StateSteps = []Step{CheckpointBegin, CheckpointSaved, ArchiveBegin, ArchiveSaved, ExtractBegin, ExtractSaved, RestoreBegin, ReplaceBegin, ReplaceReady, ReplaceStop}

var (
	_ engine.Checkpointer = (*Engine)(nil)
	_ engine.Archiver     = (*Engine)(nil)
)

// stateName is the part of a state that Restore reads.
const stateName = "state.json"

// Parts implements engine.Checkpointer.
func (e *Engine) Parts() []engine.Part {
	return []engine.Part{{Name: stateName, Kind: engine.PartSmall}, {Name: "memory.pages", Kind: engine.PartPages}}
}

// State holds the memory and the files of a sandbox's programs.
type State struct {
	mu     sync.Mutex
	memory map[string]string
	files  map[string]file
	host   *hostFiles // nil if no files of the host are shown
}

// saved is the stored form of a State, with the background loops.
type saved struct {
	Memory map[string]string
	Files  map[string]file
	Loops  []loop
}

// Remember stores a value in memory, which a checkpoint preserves and an archive does not.
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

// Write creates a file.
func (s *State) Write(name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name] = file{Type: fileType, Text: text}
}

// File returns the content of a file, or "".
func (s *State) File(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[name].Text
}

// size returns the size of the state in memory, rounded up to a page.
func (s *State) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	const page = 4096
	n := page
	for k, v := range s.memory {
		n += len(k) + len(v)
	}
	for k, f := range s.files {
		n += len(k) + len(f.Text)
	}
	return int64(n)
}

// newState returns an empty state.
func newState() *State { return &State{memory: map[string]string{}, files: map[string]file{}} }

// copy returns a copy without background loops.
func (s *State) copy() saved {
	s.mu.Lock()
	defer s.mu.Unlock()
	return saved{Memory: maps.Clone(s.memory), Files: maps.Clone(s.files)}
}

// State returns the state of a sandbox, or nil if it does not run.
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
	if err := e.reach(ctx, CheckpointBegin, id); err != nil {
		return err
	}
	b := e.find(id)
	if b == nil || !b.running() {
		return unknown(id)
	}
	state, err := b.pausedState()
	if err != nil {
		return err
	}
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	for _, p := range e.Parts() {
		if err := writeNew(filepath.Join(dir, p.Name), data); err != nil {
			return fmt.Errorf("checkpoint %s: %w", id, err)
		}
	}
	return e.reach(ctx, CheckpointSaved, id)
}

// writeNew writes a file that must not exist yet.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// load returns the initial state of a sandbox and the loops to continue: from the saved state in
// dir, or if dir is "", from the files in the specification.
func load(spec engine.Spec, dir string) (*State, []loop, error) {
	s := newState()
	if dir != "" {
		data, err := os.ReadFile(filepath.Join(dir, stateName))
		if err != nil {
			return nil, nil, err
		}
		var stored saved
		if err := json.Unmarshal(data, &stored); err != nil {
			return nil, nil, err
		}
		s.memory, s.files = stored.Memory, stored.Files
		return s, stored.Loops, nil
	}
	if spec.Boot.Files == nil {
		return s, nil, nil
	}
	return s, nil, s.unpack(io.NewSectionReader(spec.Boot.Files, 0, 1<<40))
}

// Archive implements engine.Archiver.
func (e *Engine) Archive(ctx context.Context, id string, w io.Writer) error {
	if err := e.reach(ctx, ArchiveBegin, id); err != nil {
		return err
	}
	b := e.find(id)
	if b == nil || !b.running() {
		return unknown(id)
	}
	if b.frozen() {
		return engine.Frozen(id)
	}
	if err := pack(b.state, w); err != nil {
		return err
	}
	return e.reach(ctx, ArchiveSaved, id)
}

// Extract implements engine.Archiver.
func (e *Engine) Extract(ctx context.Context, spec engine.Spec, dir string, w io.Writer) error {
	if err := e.reach(ctx, ExtractBegin, spec.ID); err != nil {
		return err
	}
	s, _, err := load(spec, dir)
	if err != nil {
		return err
	}
	if err := pack(s, w); err != nil {
		return err
	}
	return e.reach(ctx, ExtractSaved, spec.ID)
}

// Restore implements engine.Checkpointer.
func (e *Engine) Restore(ctx context.Context, spec engine.Spec, dir string) error {
	if err := e.reach(ctx, RestoreBegin, spec.ID); err != nil {
		return err
	}
	return e.create(ctx, spec, dir)
}

// Replace implements engine.Checkpointer.
func (e *Engine) Replace(ctx context.Context, spec engine.Spec, dir string) error {
	if err := e.reach(ctx, ReplaceBegin, spec.ID); err != nil {
		return err
	}
	if err := spec.Egress.Check(e.Info().Egress); err != nil {
		return err
	}
	old := e.find(spec.ID)
	if old == nil || !old.running() {
		return unknown(spec.ID)
	}
	if old.frozen() {
		return engine.Frozen(spec.ID)
	}
	b, err := e.serve(spec, dir, old.watched())
	if err != nil {
		return fmt.Errorf("replace %s: %w", spec.ID, err)
	}
	stopNew := func() { b.stop(engine.Exit{Reason: engine.ReasonKilled, At: time.Now()}) }
	if err := b.checkReady(ctx); err != nil {
		stopNew()
		return fmt.Errorf("replace %s: guest: %w", spec.ID, err)
	}
	if err := e.reach(ctx, ReplaceReady, spec.ID); err != nil {
		stopNew()
		return err
	}
	e.shared.mu.Lock()
	e.shared.instances[spec.ID] = b
	e.shared.mu.Unlock()
	old.next.Store(b)
	old.stop(engine.Exit{Reason: engine.ReasonKilled, At: time.Now()})
	if err := e.reach(ctx, ReplaceStop, spec.ID); err != nil {
		stopNew()
		if e.find(spec.ID) == b {
			e.take(spec.ID)
			err = errors.Join(err, os.RemoveAll(e.dir(spec.ID)))
		}
		return fault.Wrap(err, fault.Internal, "replace_failed", "the sandbox could not be replaced")
	}
	return nil
}
