package microvm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/engine/microvm/keeper"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/interrupt"
)

// Checkpoint implements engine.Checkpointer.
func (e *Engine) Checkpoint(ctx context.Context, id, dir string) error {
	b, err := e.running(id)
	if err != nil {
		return err
	}
	if err := b.save(ctx, dir); err != nil {
		if !b.rec.Keeper.Alive() {
			return engine.HasStopped(id, err)
		}
		return saveFault(id, err)
	}
	return nil
}

// running returns a sandbox that runs and is not frozen.
func (e *Engine) running(id string) (*instance, error) {
	b, err := e.sandboxes.Find(id)
	if err != nil {
		return nil, err
	}
	b.watch()
	if b.Over() || !b.rec.Keeper.Alive() {
		return nil, engine.HasStopped(id, nil)
	}
	if frozen, err := b.rec.Group.Frozen(); err != nil {
		return nil, err
	} else if frozen {
		return nil, engine.Frozen(id)
	}
	return b, nil
}

// save writes the parts of a state.
func (b *instance) save(ctx context.Context, dir string) error {
	d := b.rec.Machine
	own, err := os.Open(filepath.Join(b.dir, ownName))
	if d.Own {
		if err != nil {
			return err
		}
		defer own.Close()
		info, err := own.Stat()
		if err != nil {
			return err
		}
		d.OwnBytes = info.Size()
	}
	if err := d.check(); err != nil {
		return fault.Wrap(err, fault.Conflict, "sandbox_too_old", fmt.Sprintf("sandbox %q was started by a version that could not save virtual machines", b.rec.ID)).
			WithHint("start a new sandbox")
	}
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, descriptionPart), data, 0o600); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	conn, err := b.order(ctx, keeper.Order{Memory: filepath.Join(dir, memoryPart), Device: filepath.Join(dir, devicePart)})
	if err != nil {
		return err
	}
	conn.Close()
	if !d.Own {
		return nil
	}
	// The disk cannot change, so the machine already continues.
	f, err := os.OpenFile(filepath.Join(dir, memoryPart), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(d.MemoryBytes+d.OwnBytes), keeper.CopyPages(f, d.MemoryBytes, own, 0, d.OwnBytes), f.Close())
}

// errBusy is returned if the programs in a machine could not be stopped for a save.
var errBusy = errors.New("the programs cannot be stopped")

// order makes the keeper carry out an order. The caller closes the connection.
func (b *instance) order(ctx context.Context, o keeper.Order) (_ net.Conn, err error) {
	conn, err := sandboxdir.DialControl(ctx, b.dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	inTime := interrupt.When(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer inTime()
	var result keeper.Outcome
	if err = json.NewEncoder(conn).Encode(o); err == nil {
		err = json.NewDecoder(bufio.NewReader(conn)).Decode(&result)
	}
	switch {
	case !inTime():
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("the keeper of the machine does not answer: %w", err)
	case result.DiskFull:
		return nil, fmt.Errorf("%w: %s", unix.ENOSPC, result.Error)
	case result.Busy:
		return nil, fmt.Errorf("%w: %s", errBusy, result.Error)
	case result.Error != "":
		return nil, errors.New(result.Error)
	}
	return conn, nil
}

// saveFault converts an error that a caller can resolve into a fault.
func saveFault(id string, err error) error {
	if errors.Is(err, unix.ENOSPC) {
		return fault.Wrap(err, fault.Exhausted, "disk_full", "the disk is too full for the sandbox's state").
			WithHint("crannog prune removes unused files; crannog snapshot rm removes snapshots")
	}
	if errors.Is(err, errBusy) {
		return fault.Wrap(err, fault.Conflict, "programs_in_the_way", fmt.Sprintf("sandbox %q cannot be saved, because its programs could not be stopped: %v", id, err)).
			WithHint("try again; a sandbox in which root has killed all processes can no longer be saved")
	}
	return fmt.Errorf("save %s: %w", id, err)
}

// Restore implements engine.Checkpointer.
func (e *Engine) Restore(ctx context.Context, spec engine.Spec, dir string) error {
	if err := e.check(&spec); err != nil {
		return err
	}
	from, err := e.openState(dir, spec)
	if err != nil {
		return err
	}
	defer from.close()
	return e.create(ctx, spec, from)
}
