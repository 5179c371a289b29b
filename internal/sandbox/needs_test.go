package sandbox_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/hostfiles"
	"github.com/crannog/crannog/internal/sandbox"
)

// mapping is an engine that tells which files a state refers to: those that this
// process has open below a directory.
type mapping struct {
	*fake.Engine
	dir   string
	knows *atomic.Bool
}

func (b mapping) CheckpointBound(ctx context.Context, id, dir string) ([]hostfiles.File, bool, error) {
	if err := b.Checkpoint(ctx, id, dir); err != nil || !b.knows.Load() {
		return nil, false, err
	}
	open, err := hostfiles.OpenBy(os.Getpid(), b.dir)
	if err != nil {
		return nil, false, err
	}
	var list []hostfiles.File
	for _, o := range open {
		f, err := o.At(o.Path)
		if err != nil {
			return nil, false, err
		}
		list = append(list, f)
	}
	return list, true, nil
}

var _ engine.Binder = mapping{}

// F24: packages of the host may change. Only files that a memory refers to count,
// for each way to save it and to go on from it.
func TestF24OtherPackagesDoNotCount(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	var revision atomic.Value
	var knows atomic.Bool
	revision.Store("1")
	knows.Store(true)
	dir := t.TempDir()
	mapped := filepath.Join(dir, "libmapped.so")
	replace := func(text string) {
		t.Helper()
		if err := os.WriteFile(mapped+".new", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(mapped+".new", mapped); err != nil {
			t.Fatal(err)
		}
	}
	replace("one")
	held, err := os.Open(mapped)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	r.close()
	open := func() {
		t.Helper()
		r.open(func(d *sandbox.Deps) {
			d.Templates, d.Engine = revised{&revision}, mapping{d.Engine.(*fake.Engine), dir, &knows}
		})
	}
	open()
	sb, paused, late := r.create(alice), r.create(alice), r.create(alice)
	n := r.snapshot(alice, sb.ID, "n")
	if _, err := r.Pause(ctx, alice, paused.ID, false); err != nil {
		t.Fatal(err)
	}
	revision.Store("2") // a package that nothing here uses
	r.close()
	open() // all that counts is in the database
	if _, _, err := r.Resume(ctx, alice, paused.ID, 0); err != nil {
		t.Errorf("resume: %v", err)
	}
	if _, err := r.Pause(ctx, alice, paused.ID, false); err != nil {
		t.Errorf("pause: %v", err)
	}
	if forks, err := r.Fork(ctx, alice, sb.ID, sandbox.ForkRequest{Count: 1}); err != nil || forks[0].Err != nil {
		t.Errorf("fork: %v, %v", forks, err)
	}
	if _, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: n.ID}); err != nil {
		t.Errorf("of a snapshot: %v", err)
	}
	if _, err := r.Rollback(ctx, alice, sb.ID, n.ID); err != nil {
		t.Errorf("rollback: %v", err)
	}

	// An engine that cannot tell is not believed to need nothing.
	knows.Store(false)
	_, err = r.Pause(ctx, alice, late.ID, false)
	wantKind(t, err, fault.Conflict, "snapshot_programs_changed")
	knows.Store(true)

	replace("two") // what is mapped
	for what, do := range map[string]func() error{
		"resume": func() error { _, _, err := r.Resume(ctx, alice, paused.ID, 0); return err },
		"pause":  func() error { _, err := r.Pause(ctx, alice, sb.ID, false); return err },
		"fork": func() error {
			_, err := r.Fork(ctx, alice, sb.ID, sandbox.ForkRequest{Count: 1})
			return err
		},
		"snapshot": func() error {
			_, err := r.Service.Snapshot(ctx, alice, sb.ID, sandbox.SnapshotRequest{})
			return err
		},
		"create":   func() error { _, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: n.ID}); return err },
		"rollback": func() error { _, err := r.Rollback(ctx, alice, sb.ID, n.ID); return err },
	} {
		err := do()
		wantKind(t, err, fault.Conflict, "snapshot_programs_changed")
		if text := fault.PublicText(err); !strings.Contains(text, mapped) || fault.HintOf(err) == "" {
			t.Errorf("%s: the error does not name the file, or what to do: %q, %q", what, text, fault.HintOf(err))
		}
	}
	if got, err := r.Get(ctx, alice, sb.ID); err != nil || got.State != sandbox.Running {
		t.Errorf("it is %s, %v", got.State, err)
	}
	if _, err := r.Pause(ctx, alice, sb.ID, true); err != nil {
		t.Errorf("files alone: %v", err)
	}
	if _, _, err := r.ResumeFiles(ctx, alice, paused.ID, 0); err != nil {
		t.Errorf("files of what has memory: %v", err)
	}
	replace("one") // the same content is the same file
	if _, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: n.ID}); err != nil {
		t.Errorf("with the same content again: %v", err)
	}
}
