package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// imageFiles are the files of a saved state, in the order in which gVisor
// takes them: the kernel's objects, where each page of memory is, the pages.
var imageFiles = []string{"checkpoint.img", "pages_meta.img", "pages.img"}

// Parts implements engine.Checkpointer.
func (e *Engine) Parts() []engine.Part {
	return []engine.Part{
		{Name: imageFiles[0], Kind: engine.PartSmall}, {Name: imageFiles[1], Kind: engine.PartSmall}, {Name: imageFiles[2], Kind: engine.PartPages},
	}
}

// generation counts our own changes after which a state needs another kernel than an earlier state,
// so that earlier versions cannot restore it. Generation 2 shows the workspace as the user's, and
// gives the user no capability.
const generation = "2"

// Format implements engine.Checkpointer. What gVisor writes is read by the
// same version of it, on the same kind of processor.
func (e *Engine) Format() string {
	return "gvisor/" + runtimeVersion() + "/" + architecture + "/" + generation
}

// Restores implements engine.Checkpointer.
func (e *Engine) Restores(format string) bool {
	// The first generation had no number.
	return format == e.Format() || format+"/"+generation == e.Format()
}

// Checkpoint implements engine.Checkpointer.
func (e *Engine) Checkpoint(ctx context.Context, id, dir string) error {
	_, err := e.checkpoint(ctx, id, dir, nil)
	return err
}

func (e *Engine) checkpoint(ctx context.Context, id, dir string, look func(*instance)) (sure bool, err error) {
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
	if sure, err = b.save(ctx, dir, look); err != nil {
		return false, b.endedMeanwhile(ctx, err)
	}
	return sure, nil
}

// save writes the sandbox's state. look, if not nil, is called when the sandbox has exactly the
// files open that its state refers to. sure reports that the sandbox stood still until look
// returned.
func (b *instance) save(ctx context.Context, dir string, look func(*instance)) (sure bool, err error) {
	began, id := time.Now(), b.rec.ID
	// Changes are reported only by the sandbox that made them: a sandbox that is restored
	// from its state begins with none.
	if err := b.surveyFirst(ctx); err != nil {
		return false, err
	}
	surveyed := time.Now()
	if err := b.trim(ctx); err != nil {
		// This only makes the save slower.
		b.e.log.Warn("memory of a sandbox not given back before its save", "sandbox", id, "err", err)
	}
	trimmed := time.Now()
	files, err := openImage(dir, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR)
	if err != nil {
		return false, saveFault(id, err)
	}
	defer closeFiles(files)
	sent, written := slices.Clone(files), func(error) (bool, error) { return false, nil }
	if look != nil {
		// The state's file is a pipe to us: see halfway.
		if sent[0], written, err = halfway(files[0], func() { look(b) }); err != nil {
			return false, saveFault(id, err)
		}
		defer sent[0].Close()
	}
	opts := control.SaveOpts{
		Metadata:      statefile.CompressionLevelNone.ToMetadata(),
		HavePagesFile: true,
		// Most of the memory that programs have reserved is pages of zeros.
		AppMFExcludeCommittedZeroPages: true,
		FilePayload:                    urpc.FilePayload{Files: sent},
		// Without this, the kernel ends after the save, often before it has answered, and even if
		// the save failed.
		Resume: true,
	}
	err = b.conns.call(ctx, boot.ContMgrCheckpoint, &opts, nil)
	if look != nil {
		err = errors.Join(err, sent[0].Close())
		var lost error
		sure, lost = written(err)
		err = errors.Join(err, lost)
	}
	b.nudge()
	if err != nil {
		return false, saveFault(id, err)
	}
	b.e.log.Debug("box saved", "sandbox", id,
		"survey", surveyed.Sub(began), "trim", trimmed.Sub(surveyed), "save", time.Since(trimmed), "all", time.Since(began))
	return sure, nil
}

// forwarding is gVisor's error for a sandbox into which a port is forwarded: its kernel itself does
// the copying, and not a program that could stand still.
const forwarding = "waiter.ChannelNotifier"

// saveFault returns a fault for an error that a caller can do something about.
func saveFault(id string, err error) error {
	if errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		return fault.Wrap(err, fault.Exhausted, "disk_full", "there is no room on the disk for the sandbox's state").
			WithHint("crannog prune frees what nothing needs; crannog snapshot rm drops snapshots")
	}
	if strings.Contains(err.Error(), forwarding) {
		// The rest of the text is gVisor's own view of its memory.
		return fault.Newf(fault.Conflict, "streams_in_the_way", "another program of this host has streams into sandbox %q, which cannot be saved", id).
			WithHint("end it, or let one crannog serve do all the work")
	}
	return fmt.Errorf("save %s: %w", id, err)
}

func openImage(dir string, flags int) ([]*os.File, error) {
	var files []*os.File
	for _, name := range imageFiles {
		f, err := os.OpenFile(filepath.Join(dir, name), flags, 0o600)
		if err != nil {
			closeFiles(files)
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// resume lets a kernel continue from a saved state. Pages are read while programs already run.
func resume(conn *urpc.Client, dir string) error {
	files, err := openImage(dir, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer closeFiles(files)
	opts := boot.RestoreOpts{FilePayload: urpc.FilePayload{Files: files}, HavePagesFile: true, Background: true}
	return conn.Call(boot.ContMgrRestore, &opts, nil)
}

// Restore implements engine.Checkpointer.
func (e *Engine) Restore(ctx context.Context, spec engine.Spec, dir string) error {
	if err := ready(&spec); err != nil {
		return err
	}
	kind, err := kindToRestore(running, dir)
	if err != nil {
		return err
	}
	k, err := e.kernelFor(ctx, kind, spec)
	if err != nil {
		return err
	}
	return e.launch(ctx, k, spec, dir)
}

// kernelFor is a kernel in the directory of the sandbox's ID, a spare one if there
// is one.
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
	if err := ready(&spec); err != nil {
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
	kind := kernelKind{platform: running}
	if dir != "" {
		if kind, err = kindToRestore(running, dir); err != nil {
			return err
		}
	}
	k := e.takePrestartedOf(kind, spec)
	if k == nil {
		if k, err = e.newPrestartedOn(ctx, kind, spec); err != nil {
			return err
		}
	}
	if err := old.surveyFirst(ctx); err != nil {
		k.discard()
		return err
	}
	if err := old.adopt(); err != nil {
		k.discard()
		return fmt.Errorf("replace %s: %w", spec.ID, err)
	}
	// The old sandbox stands still, so that nothing is done twice, and continues if the
	// new one fails.
	if err := old.standStill(pausePatience); err != nil {
		k.discard()
		return fmt.Errorf("replace %s: %w", spec.ID, err)
	}
	if err := e.start(ctx, k, spec, dir); err != nil {
		k.discard()
		// A caller that leaves now must not leave the sandbox paused.
		if err := old.resumeWithin(context.WithoutCancel(ctx), spec, resumePatience); err != nil {
			e.log.Error("a sandbox that was to be replaced does not go on", "sandbox", spec.ID, "err", err)
		}
		return e.explain(spec.ID, err)
	}
	return e.exchange(old, k.b, spec.ID)
}

// exchange replaces a sandbox with another running one, and ends the old one.
func (e *Engine) exchange(old, next *instance, id string) error {
	if err := old.replaceBy(next, id); err != nil {
		undo := errors.Join(next.destroy(), old.destroy())
		return fault.Wrap(errors.Join(err, undo), fault.Internal, "replace_failed", fmt.Sprintf("sandbox %s could not be replaced and has ended", id))
	}
	e.publish(next)
	// The old sandbox stands still and no longer has the ID, so no caller has to wait for
	// its end. What a crash leaves of it is in a spare kernel's directory.
	e.spares.done.Go(func() {
		if err := old.destroy(); err != nil {
			e.log.Error("end of a replaced sandbox", "sandbox", id, "err", err)
		}
	})
	return nil
}
