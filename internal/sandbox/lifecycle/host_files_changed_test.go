package lifecycle_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/state/hostfiles"
)

// mappingEngine is an engine that reports which files a state refers to: those that this process
// has open below a directory.
type mappingEngine struct {
	*fake.Engine
	dir          string
	reportsFiles *atomic.Bool
	shown        *atomic.Value // the stand-ins of the last restored instance
}

func (b mappingEngine) Restore(ctx context.Context, spec engine.Spec, dir string) error {
	b.shown.Store(spec.StandIns)
	return b.Engine.Restore(ctx, spec, dir)
}

func (b mappingEngine) Replace(ctx context.Context, spec engine.Spec, dir string) error {
	b.shown.Store(spec.StandIns)
	return b.Engine.Replace(ctx, spec, dir)
}

func (b mappingEngine) CheckpointBound(ctx context.Context, id, dir string) (list engine.Bound, bound bool, err error) {
	if err := b.Checkpoint(ctx, id, dir); err != nil || !b.reportsFiles.Load() {
		return engine.Bound{}, false, err
	}
	if list.Open, err = hostfiles.OpenBy(os.Getpid(), b.dir); err != nil {
		return engine.Bound{}, false, err
	}
	for _, o := range list.Open {
		f, err := o.At(o.Path)
		if err != nil {
			return engine.Bound{}, false, err
		}
		f.Inside = o.Path
		list.Files = append(list.Files, f)
	}
	return list, true, nil
}

var _ engine.Binder = mappingEngine{}

// F24: packages of the host may change. Only files that a memory refers to matter, for each way to
// save and to restore it.
func TestF24UnrelatedPackagesMayChange(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	var revision atomic.Value
	var reportsFiles atomic.Bool
	revision.Store("1")
	reportsFiles.Store(true)
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
	openFile, err := os.Open(mapped)
	if err != nil {
		t.Fatal(err)
	}
	defer openFile.Close()
	r.close()
	open := func() {
		t.Helper()
		r.open(func(d *lifecycle.Deps) {
			d.Templates, d.Engines = changingTemplates{&revision}, fake.Registry(mappingEngine{d.Engines.Default().(*fake.Engine), dir, &reportsFiles, &atomic.Value{}})
		})
	}
	open()
	sb, paused, late := r.create(alice), r.create(alice), r.create(alice)
	n := r.snapshot(alice, sb.ID, "n")
	if _, err := r.Pause(ctx, alice, paused.ID, false); err != nil {
		t.Fatal(err)
	}
	revision.Store("2") // a package that is not used here
	r.close()
	open() // everything that matters is in the database
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
		t.Errorf("creation from a snapshot: %v", err)
	}
	if _, err := r.Rollback(ctx, alice, sb.ID, n.ID); err != nil {
		t.Errorf("rollback: %v", err)
	}

	// An engine that cannot report the files is not assumed to need none.
	reportsFiles.Store(false)
	_, err = r.Pause(ctx, alice, late.ID, false)
	wantKind(t, err, fault.Conflict, "snapshot_programs_changed")
	reportsFiles.Store(true)

	replace("two") // the mapped file changes
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
		t.Errorf("the sandbox is %s, %v", got.State, err)
	}
	if _, err := r.Pause(ctx, alice, sb.ID, true); err != nil {
		t.Errorf("pause of files only: %v", err)
	}
	if _, _, err := r.ResumeFiles(ctx, alice, paused.ID, 0); err != nil {
		t.Errorf("resumption of the files of saved memory: %v", err)
	}
	replace("one") // the same content counts as the same file
	if _, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: n.ID}); err != nil {
		t.Errorf("with the same content again: %v", err)
	}
}

// F24: mapped files are copied, so that a change of their package does not matter either, until the
// copy is removed.
func TestF24MappedFilesAreCopied(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	var revision atomic.Value
	var reportsFiles atomic.Bool
	revision.Store("1")
	reportsFiles.Store(true)
	dir, copies := t.TempDir(), filepath.Join(t.TempDir(), "copies")
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
	openFile, err := os.Open(mapped)
	if err != nil {
		t.Fatal(err)
	}
	defer openFile.Close()
	store, err := hostfiles.OpenStore(copies)
	if err != nil {
		t.Fatal(err)
	}
	var shown atomic.Value
	open := func() {
		t.Helper()
		r.open(func(d *lifecycle.Deps) {
			d.Templates, d.HostFiles, d.Engines = changingTemplates{&revision}, store, fake.Registry(mappingEngine{d.Engines.Default().(*fake.Engine), dir, &reportsFiles, &shown})
		})
	}
	wantCopy := func(what string, do func() error) {
		t.Helper()
		shown.Store([]engine.Bind(nil))
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		list, _ := shown.Load().([]engine.Bind)
		if len(list) != 1 || list[0].Target != mapped {
			t.Errorf("%s: the instance got the copies %+v", what, list)
		} else if data, err := os.ReadFile(list[0].Source); err != nil || string(data) != "one" {
			t.Errorf("%s: the copy is %q, %v", what, data, err)
		}
	}
	r.close()
	open()
	sb, paused := r.create(alice), r.create(alice)
	n := r.snapshot(alice, sb.ID, "n")
	got, err := r.Pause(ctx, alice, paused.ID, false)
	if err != nil {
		t.Fatal(err)
	}
	for what, needs := range map[string]*sandbox.Needs{"paused": got.Needs, "snapshot": n.Needs} {
		if needs == nil || len(needs.Files) != 1 || needs.Files[0].Path != mapped || !needs.Files[0].Kept {
			t.Errorf("%s: needed files are %+v", what, needs)
		}
	}
	// Checked first: a file that was replaced while its program runs.
	revision.Store("2")
	replace("two")
	if _, err := r.Pause(ctx, alice, sb.ID, false); err != nil {
		t.Errorf("pause with a file that was replaced: %v", err)
	}
	wantCopy("resume", func() error { _, _, err := r.Resume(ctx, alice, sb.ID, 0); return err })
	if err := os.Remove(mapped); err != nil {
		t.Fatal(err)
	}
	r.close()
	open() // everything that matters is on the disk
	wantCopy("resume later", func() error { _, _, err := r.Resume(ctx, alice, paused.ID, 0); return err })
	wantCopy("create", func() error { _, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: n.ID}); return err })
	wantCopy("rollback", func() error { _, err := r.Rollback(ctx, alice, sb.ID, n.ID); return err })
	wantCopy("fork", func() error {
		forks, err := r.Fork(ctx, alice, sb.ID, sandbox.ForkRequest{Count: 1})
		if err == nil {
			err = forks[0].Err
		}
		return err
	})

	// The last state that refers to a copy was removed, and nothing uses it.
	entries, err := os.ReadDir(copies)
	if err != nil || len(entries) != 1 {
		t.Fatalf("copies of host files: got %v, %v; want one", entries, err)
	}
	at := filepath.Join(copies, entries[0].Name())
	if err := r.RemoveSnapshot(ctx, alice, n.ID); err != nil {
		t.Fatal(err)
	}
	dayAgo := time.Now().Add(-24 * time.Hour)
	for _, referenced := range []bool{true, false} {
		if referenced {
			if _, err := r.Pause(ctx, alice, paused.ID, false); err != nil {
				t.Fatal(err)
			}
		} else if err := r.Remove(ctx, alice, paused.ID); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(at, dayAgo, dayAgo); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Prune(ctx, local); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(at); (err == nil) != referenced {
			t.Errorf("referenced %v, but the copy: %v", referenced, err)
		}
	}
}
