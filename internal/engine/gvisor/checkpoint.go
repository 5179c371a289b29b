package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/calm"
)

// stateFiles lists the files of a saved state, in the order in which gVisor expects them: the
// kernel's objects, the location of each page of memory, the pages.
var stateFiles = []string{"checkpoint.img", "pages_meta.img", "pages.img"}

// Parts implements engine.Checkpointer.
func (e *Engine) Parts() []engine.Part {
	return []engine.Part{
		{Name: stateFiles[0], Kind: engine.PartSmall}, {Name: stateFiles[1], Kind: engine.PartSmall}, {Name: stateFiles[2], Kind: engine.PartPages},
	}
}

// generation counts the changes of this package after which kernels of earlier versions cannot
// restore new states. Since generation 2, the workspace belongs to the user, and the user has no
// capability.
const generation = "2"

// Format implements engine.Checkpointer. A state can be read by the same version of gVisor, on the
// same kind of processor.
func (e *Engine) Format() string {
	return "gvisor/" + runtimeVersion() + "/" + architecture + "/" + generation
}

// Restores implements engine.Checkpointer.
func (e *Engine) Restores(format string) bool {
	// The name of the first generation has no number.
	return format == e.Format() || format+"/"+generation == e.Format()
}

// Checkpoint implements engine.Checkpointer.
func (e *Engine) Checkpoint(ctx context.Context, id, dir string) error {
	_, err := e.checkpoint(ctx, id, dir, nil)
	return err
}

// checkpoint saves the state of a running sandbox. See save for look and certain.
func (e *Engine) checkpoint(ctx context.Context, id, dir string, look func(*instance)) (certain bool, err error) {
	b, err := e.find(id)
	if err != nil {
		return false, err
	}
	b.watch()
	if b.over() {
		return false, engine.HasStopped(id, nil)
	}
	if b.frozen() {
		return false, engine.Frozen(id)
	}
	if certain, err = b.save(ctx, dir, look); err != nil {
		return false, b.endedMeanwhile(ctx, err)
	}
	return certain, nil
}

// save writes the sandbox's state. If look is not nil, save calls it at a time when the sandbox has
// exactly the files open that its state refers to. certain reports whether the sandbox certainly
// stayed paused until look returned.
func (b *instance) save(ctx context.Context, dir string, look func(*instance)) (certain bool, err error) {
	started, id := time.Now(), b.rec.ID
	again, err := b.prepareSave(ctx)
	defer again()
	if err != nil {
		return false, err
	}
	prepared := time.Now()
	files, err := openState(dir, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR)
	if err != nil {
		return false, saveFault(id, err)
	}
	defer closeFiles(files)
	sent, written := slices.Clone(files), func(error) (bool, error) { return false, nil }
	if look != nil {
		// The state's file is a pipe to this process, see copyWithPause.
		if sent[0], written, err = copyWithPause(files[0], func() { look(b) }); err != nil {
			return false, saveFault(id, err)
		}
		defer sent[0].Close()
	}
	opts := control.SaveOpts{
		Metadata:      statefile.CompressionLevelNone.ToMetadata(),
		HavePagesFile: true,
		// Most of the memory that programs have reserved consists of pages of zeros.
		AppMFExcludeCommittedZeroPages: true,
		FilePayload:                    urpc.FilePayload{Files: sent},
		// Without this, the kernel ends after the save, often before it has answered, and even if
		// the save failed.
		Resume: true,
	}
	err = b.conns.call(ctx, boot.ContMgrCheckpoint, &opts, nil)
	if look != nil {
		err = errors.Join(err, sent[0].Close())
		var writeErr error
		certain, writeErr = written(err)
		err = errors.Join(err, writeErr)
	}
	b.remindGuest()
	if err != nil {
		return false, saveFault(id, err)
	}
	b.e.log.Debug("sandbox saved", "sandbox", id,
		"prepare", prepared.Sub(started), "save", time.Since(prepared), "all", time.Since(started))
	return certain, nil
}

// prepareSave makes the kernel write its pending events, release memory that is not used, and use
// all processors. The returned function ends the last of these.
func (b *instance) prepareSave(ctx context.Context) (again func(), err error) {
	again = func() {} // without privileges, the kernel's monitor thread is as it always was
	var work sync.WaitGroup
	work.Go(func() {
		if resumed, err := calm.Resume(b.rec.Sentry.PID); err == nil {
			again = resumed
		}
	})
	// Only this sandbox can report its changes: a sandbox that is restored from its state begins
	// with an empty list of changes. It cannot report any while trim pauses its programs.
	err = b.flushBefore(ctx)
	if err == nil {
		if err := b.trim(ctx); err != nil {
			// A failure only makes the save slower.
			b.e.log.Warn("cannot release the free memory of a sandbox before its save", "sandbox", b.rec.ID, "err", err)
		}
	}
	work.Wait()
	return again, err
}

// forwardingError is a part of gVisor's error for a sandbox into which a port is forwarded. The
// sandbox's kernel itself copies the data, so it cannot be paused.
const forwardingError = "waiter.ChannelNotifier"

// saveFault converts an error that a caller can resolve into a fault.
func saveFault(id string, err error) error {
	if errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		return fault.Wrap(err, fault.Exhausted, "disk_full", "the disk is too full for the sandbox's state").
			WithHint("crannog prune removes unused files; crannog snapshot rm removes snapshots")
	}
	if strings.Contains(err.Error(), forwardingError) {
		// gVisor's error is not added, because it describes the kernel's memory.
		return fault.Newf(fault.Conflict, "streams_in_the_way", "sandbox %q cannot be saved, because another program of this host has open streams into it", id).
			WithHint("end that program, or use one crannog serve for all work")
	}
	return fmt.Errorf("save %s: %w", id, err)
}

// openState opens the files of a saved state.
func openState(dir string, flags int) ([]*os.File, error) {
	var files []*os.File
	for _, name := range stateFiles {
		f, err := os.OpenFile(filepath.Join(dir, name), flags, 0o600)
		if err != nil {
			closeFiles(files)
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// closeFiles closes files after which no error matters.
func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// resume makes a kernel continue from a saved state. Programs already run while pages are still
// being read.
func resume(conn *urpc.Client, dir string) error {
	files, err := openState(dir, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer closeFiles(files)
	opts := boot.RestoreOpts{FilePayload: urpc.FilePayload{Files: files}, HavePagesFile: true, Background: true}
	return conn.Call(boot.ContMgrRestore, &opts, nil)
}

// Restore implements engine.Checkpointer.
func (e *Engine) Restore(ctx context.Context, spec engine.Spec, dir string) error {
	if err := prepareSpec(&spec); err != nil {
		return err
	}
	kind, err := kindToRestore(systrapName, dir)
	if err != nil {
		return err
	}
	k, err := e.kernelFor(ctx, kind, spec)
	if err != nil {
		return err
	}
	return e.launch(ctx, k, spec, dir)
}

// kernelFor returns a kernel in the directory of the sandbox's ID, a prestarted one if possible.
func (e *Engine) kernelFor(ctx context.Context, kind kernelKind, spec engine.Spec) (*kernel, error) {
	k := e.takePrestartedOf(kind, spec)
	if k == nil {
		return e.newKernelOn(ctx, kind, spec, e.kernelName(spec), e.instanceDir(spec.ID))
	}
	if err := k.b.move(spec.ID, unix.RENAME_NOREPLACE); err != nil {
		k.discard()
		if errors.Is(err, unix.EEXIST) {
			return nil, taken(spec.ID)
		}
		return nil, fmt.Errorf("create %s: %w", spec.ID, err)
	}
	return k, nil
}

// Replace implements engine.Checkpointer.
func (e *Engine) Replace(ctx context.Context, spec engine.Spec, dir string) error {
	if err := prepareSpec(&spec); err != nil {
		return err
	}
	old, err := e.find(spec.ID)
	if err != nil {
		return err
	}
	old.watch()
	if old.frozen() {
		return engine.Frozen(spec.ID)
	}
	kind := kernelKind{platform: systrapName}
	if dir != "" {
		if kind, err = kindToRestore(systrapName, dir); err != nil {
			return err
		}
	}
	k := e.takePrestartedOf(kind, spec)
	if k == nil {
		if k, err = e.newPrestartedOn(ctx, kind, spec); err != nil {
			return err
		}
	}
	if err := old.flushBefore(ctx); err != nil {
		k.discard()
		return err
	}
	if err := old.adopt(); err != nil {
		k.discard()
		return fmt.Errorf("replace %s: %w", spec.ID, err)
	}
	// The old sandbox is paused, so that the two do not do the same work twice. It continues if the
	// new sandbox fails.
	if err := old.pauseWithin(pauseTimeout); err != nil {
		k.discard()
		return fmt.Errorf("replace %s: %w", spec.ID, err)
	}
	if err := e.start(ctx, k, spec, dir); err != nil {
		k.discard()
		// The sandbox must not stay paused if the caller cancels now.
		if err := old.resumeWithin(context.WithoutCancel(ctx), spec, resumeTimeout); err != nil {
			e.log.Error("cannot resume a sandbox after a failed replacement", "sandbox", spec.ID, "err", err)
		}
		return e.explain(spec.ID, err)
	}
	return e.exchange(old, k.b, spec.ID)
}

// exchange replaces a sandbox by another running one, and ends the old one.
func (e *Engine) exchange(old, next *instance, id string) error {
	if err := old.replaceBy(next, id); err != nil {
		undoErr := errors.Join(next.destroy(), old.destroy())
		return fault.Wrap(errors.Join(err, undoErr), fault.Internal, "replace_failed", fmt.Sprintf("sandbox %s could not be replaced and has ended", id))
	}
	e.publish(next)
	// The old sandbox is paused and no longer has the ID, so no caller has to wait for its end.
	// After a crash, its remains are in the directory of a prestarted kernel.
	e.spares.done.Go(func() {
		if err := old.destroy(); err != nil {
			e.log.Error("end a replaced sandbox", "sandbox", id, "err", err)
		}
	})
	return nil
}
