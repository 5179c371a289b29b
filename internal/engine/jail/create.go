package jail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/fault"
)

// Create implements engine.Engine.
func (e *Engine) Create(ctx context.Context, spec engine.Spec) error {
	if err := e.check(&spec); err != nil {
		return err
	}
	b := newInstance(e, record{ID: spec.ID, Created: time.Now(), Limits: spec.Limits, Slot: -1})
	if err := e.sandboxes.Create(ctx, spec.ID, b, func() error { return b.make(ctx, spec) }); err != nil {
		return err
	}
	b.watch()
	return nil
}

// check refuses what the engine cannot do, and fills in the default limits.
func (e *Engine) check(spec *engine.Spec) error {
	info := e.Info()
	if e.blind == nil {
		info.Capabilities = append(info.Capabilities, engine.CanObserve) // the engine that New returned has it
	}
	if err := spec.Check(info); err != nil {
		return err
	}
	if len(spec.StandIns) > 0 {
		return fault.Newf(fault.Unsupported, "state_unsupported", "the engine %s restores no saved memory", e.name())
	}
	spec.Limits = spec.Limits.OrDefault()
	return spec.CheckEvents()
}

// make starts the sandbox and returns when its guest is ready.
func (b *instance) make(ctx context.Context, spec engine.Spec) (err error) {
	if err := b.prepareEvents(spec); err != nil {
		return err
	}
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
	var gateway *os.File // the gateway's end of a network without an interface
	if spec.Egress.Kind == engine.EgressProxy {
		if gateway, err = sandboxdir.ListenGateway(b.dir); err != nil {
			return fmt.Errorf("network: %w", err)
		}
		defer gateway.Close()
	}
	c, err := b.e.startChild(b, spec)
	if err != nil {
		return err
	}
	defer c.close()
	b.rec.Init, err = b.Start(c.cmd)
	// If ctx is done, the child is killed, which ends every wait for it.
	stop := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })
	defer stop()
	if err != nil {
		return err
	}
	if err := b.rec.write(b.dir); err != nil {
		return err
	}
	if err := b.observe(spec.Events); err != nil {
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
	if gateway != nil {
		if boot.Config, err = spec.Egress.Attach(ctx, gateway); err != nil {
			return err
		}
	}
	if device != nil {
		boot.Config, err = spec.Egress.Attach(ctx, device)
		if err = errors.Join(err, device.Close()); err != nil {
			return err
		}
	}
	go writeBoot(c.config, boot)
	output := c.output
	c.config, c.output = nil, nil
	if err := engine.AwaitReady(ctx, output); err != nil {
		return err
	}
	return b.observeFiles()
}

// guestThreads is the number of tasks of the control group that are reserved for the guest. Without
// them, the guest could not start a command once programs have reached the limit.
const guestThreads = 64

// groupName is the name of a sandbox's control groups.
func (e *Engine) groupName(id string) string { return e.name() + "-" + id }

// writeBoot writes the boot configuration to the guest. It ignores errors: if the guest has ended,
// the code that waits for it notices.
func writeBoot(to *os.File, boot engine.Boot) {
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
	_ = output.SetReadDeadline(time.Now().Add(drainTime)) // if no deadline can be set, the read still ends with the process
	data, _ := io.ReadAll(io.LimitReader(output, 64<<10))
	return fmt.Errorf("%w: %s", err, bytes.TrimSpace(data))
}

// startFault explains why a process in new namespaces did not start. If the limit of user
// namespaces is reached or zero, the kernel returns "no space" or "too many users" rather than "not
// permitted".
func (e *Engine) startFault(err error) error {
	for _, errno := range []error{syscall.EPERM, syscall.EACCES, syscall.ENOSPC, syscall.EUSERS, syscall.EINVAL} {
		if errors.Is(err, errno) {
			return fault.Wrap(err, fault.Unsupported, "user_namespaces_unavailable", "on this host, this user cannot create the namespaces of a jail").
				WithHint("crannog doctor lists what is missing")
		}
	}
	return fmt.Errorf("start the first process: %w", err)
}
