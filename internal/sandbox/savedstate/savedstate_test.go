package savedstate_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/savedstate"
)

// TestServiceWithoutImages checks that a service without images does not save, and has nothing to
// maintain.
func TestServiceWithoutImages(t *testing.T) {
	s := savedstate.New(savedstate.Deps{})
	ctx := t.Context()
	_, _, saver := s.Saver(ctx, sandbox.Row{}, false)
	_, begin := s.Begin(ctx, "a")
	_, open := s.Open(ctx, "fake", engine.Spec{}, savedstate.Source{Saved: sandbox.Saved{Image: "a"}})
	for name, err := range map[string]error{
		"available": s.Available(), "memory": s.CanSave("fake", false), "files": s.CanSave("fake", true), "saver": saver, "begin": begin, "open": open,
	} {
		if fault.KindOf(err) != fault.Unsupported || fault.CodeOf(err) != "state_unsupported" {
			t.Errorf("%s: got error %v, want state_unsupported", name, err)
		}
	}
	s.Persist(ctx)
	freed, err := s.Deduplicate(ctx)
	paused, snapshots, missing := s.Missing(ctx)
	if err := errors.Join(err, missing, s.Remove(ctx, "a")); err != nil || freed != 0 || len(paused)+len(snapshots) != 0 {
		t.Errorf("maintenance without images: %v, %d bytes freed, %v and %v missing", err, freed, paused, snapshots)
	}
	if o, err := s.Open(ctx, "fake", engine.Spec{}, savedstate.Source{}); err != nil || o.Dir != "" || o.Archive != nil || o.Close() != nil {
		t.Errorf("Open without a saved state: %+v, %v", o, err)
	}
}

func TestSourceReportsMemory(t *testing.T) {
	memory := savedstate.Source{Saved: sandbox.Saved{Image: "a"}}
	files := savedstate.Source{Saved: sandbox.Saved{Image: "a", FilesOnly: true}}
	without := memory
	without.Files = true
	if !memory.Memory() || files.Memory() || without.Memory() || (savedstate.Source{}).Memory() {
		t.Error("Memory must report true only for a state with memory that is not ignored")
	}
}

func TestOpenedIsClosedOnce(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "files"))
	if err != nil {
		t.Fatal(err)
	}
	o := &savedstate.Opened{Archive: f}
	if err := errors.Join(o.Close(), o.Close(), (*savedstate.Opened)(nil).Close()); err != nil {
		t.Error(err)
	}
	if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the archive is still open: %v", err)
	}
}

func TestDiskFullIsClassified(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		err := savedstate.DiskFull(fmt.Errorf("write: %w", cause))
		if fault.KindOf(err) != fault.Exhausted || fault.CodeOf(err) != "snapshot_disk_full" || !errors.Is(err, cause) {
			t.Errorf("%v: got error %v, want snapshot_disk_full", cause, err)
		}
	}
	other := errors.New("other")
	if err := savedstate.DiskFull(other); fault.KindOf(err) == fault.Exhausted || !errors.Is(err, other) {
		t.Error("an unrelated error is changed")
	}
}
