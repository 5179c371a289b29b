package jail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// Create implements engine.Engine.
func (e *Engine) Create(ctx context.Context, spec engine.Spec) error {
	if err := e.check(&spec); err != nil {
		return err
	}
	dir := e.instanceDir(spec.ID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fault.Newf(fault.Exists, "sandbox_exists", "sandbox %q exists", spec.ID)
		}
		return fmt.Errorf("create %s: %w", spec.ID, err)
	}
	b := newInstance(e, record{ID: spec.ID, Created: time.Now(), Limits: spec.Limits, Slot: -1})
	if err := b.make(ctx, spec); err != nil {
		// The caller's context may have caused the failure, so the cleanup has a deadline of its
		// own.
		if undone := b.destroy(); undone != nil {
			e.log.Error("undo create", "sandbox", spec.ID, "err", undone)
		}
		return e.explain(ctx, spec.ID, err)
	}
	e.mu.Lock()
	e.boxes[spec.ID] = b
	e.mu.Unlock()
	b.watch()
	return nil
}

// check refuses what the engine cannot do, and fills in the default limits.
func (e *Engine) check(spec *engine.Spec) error {
	if err := spec.Check(e.Info()); err != nil {
		return err
	}
	if len(spec.StandIns) > 0 {
		return fault.Newf(fault.Unsupported, "state_unsupported", "the engine %s restores no saved memory", e.name())
	}
	spec.Limits = spec.Limits.OrDefault()
	return nil
}

// make starts the sandbox and returns when its guest is ready.
func (b *instance) make(ctx context.Context, spec engine.Spec) (err error) {
	if err := b.rec.write(b.dir); err != nil {
		return err
	}
	if b.rec.Slot, err = b.e.takeSlot(spec.ID); err != nil {
		return fmt.Errorf("range of IDs: %w", err)
	}
	if b.e.groups != nil {
		// A crash before the next record leaves an empty group of this name, which Remove finds by
		// name.
		if b.rec.Group, err = b.e.groups.CreateFor(b.e.groupName(spec.ID), spec.Limits, spec.Limits.PIDs+guestThreads); err != nil {
			return err
		}
	}
	c, err := b.e.startChild(b, spec)
	if err != nil {
		return err
	}
	defer c.close()
	b.reap(c.cmd)
	// Once the child has ended, every wait for it ends.
	stop := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })
	defer stop()
	if b.rec.Init, err = c.identify(); err != nil {
		return err
	}
	if err := b.rec.write(b.dir); err != nil {
		return err
	}
	device, err := b.e.request(c, b, spec)
	if err != nil {
		if device != nil {
			err = errors.Join(err, device.Close())
		}
		return withOutput(err, c.output)
	}
	boot := spec.Boot
	if device != nil {
		boot.Config, err = spec.Egress.Attach(ctx, device)
		if err = errors.Join(err, device.Close()); err != nil {
			return err
		}
	}
	go feed(c.config, boot)
	output := c.output
	c.config, c.output = nil, nil
	return engine.AwaitReady(ctx, output)
}

// guestThreads is the number of tasks of the control group that are reserved for the guest. Without
// them, the guest could not start a command once programs have reached the limit.
const guestThreads = 64

// groupName is the name of a sandbox's control groups.
func (e *Engine) groupName(id string) string { return e.name() + "-" + id }

// feed writes the boot configuration to the guest. It ignores errors: if the reader is gone, the
// code that waits for the guest notices.
func feed(to *os.File, boot engine.Boot) {
	defer to.Close()
	_, _ = io.Copy(to, boot.Stream())
}

// drainTime bounds how long the output of a failed child is read.
const drainTime = 2 * time.Second

// withOutput adds the output of the first process to an error that it caused.
func withOutput(err error, output *os.File) error {
	if !errors.Is(err, errEnded) {
		return err
	}
	_ = output.SetReadDeadline(time.Now().Add(drainTime)) // without a deadline, the read still ends with the process
	data, _ := io.ReadAll(io.LimitReader(output, 64<<10))
	return fmt.Errorf("%w: %s", err, bytes.TrimSpace(data))
}

// startFault explains why a process in new namespaces did not start. If the limit of user
// namespaces is reached or zero, the kernel returns "no space" or "too many users" rather than "not
// permitted".
func (e *Engine) startFault(err error) error {
	for _, refusal := range []error{syscall.EPERM, syscall.EACCES, syscall.ENOSPC, syscall.EUSERS, syscall.EINVAL} {
		if errors.Is(err, refusal) {
			return fault.Wrap(err, fault.Unsupported, "user_namespaces_unavailable", "on this host, this user cannot create the namespaces of a jail").
				WithHint("crannog doctor lists what is missing")
		}
	}
	return fmt.Errorf("start the first process: %w", err)
}

// explain converts errors that a user can resolve into faults.
func (e *Engine) explain(ctx context.Context, id string, err error) error {
	if _, known := errors.AsType[*fault.Error](err); known {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.Timeout, "create_timeout", "the sandbox did not start in time")
	case errors.Is(err, context.Canceled):
		return fault.Wrap(err, fault.Canceled, "canceled", "the caller canceled the request while the sandbox started")
	}
	return fault.Wrap(err, fault.Unavailable, "engine_failed", fmt.Sprintf("sandbox %s did not start: %v", id, err))
}
