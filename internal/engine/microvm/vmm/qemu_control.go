package vmm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/crannog/crannog/internal/engine/microvm/qmp"
)

// Control implements VMM.
func (QEMU) Control(ctx context.Context, end *net.UnixConn) (Controller, error) {
	client, err := qmp.New(ctx, end)
	if err != nil {
		return nil, err
	}
	return qemuControl{client}, nil
}

// qemuControl implements Controller.
type qemuControl struct{ client *qmp.Client }

// do sends a command without a file.
func (c qemuControl) do(ctx context.Context, command string, arguments any) error {
	_, err := c.client.Execute(ctx, command, arguments, -1)
	return err
}

// Stop implements Controller.
func (c qemuControl) Stop(ctx context.Context) error { return c.do(ctx, "stop", nil) }

// Continue implements Controller.
func (c qemuControl) Continue(ctx context.Context) error { return c.do(ctx, "cont", nil) }

// stateFile is the name under which QEMU receives the descriptor of a state.
const stateFile = "state"

// migrationSpeed is as many bytes per second as QEMU allows. The default is for a network.
const migrationSpeed = 1 << 40

// prepare sends QEMU the file for a state, without the memory, which is in a file of its own.
func (c qemuControl) prepare(ctx context.Context, f *os.File) error {
	err := c.do(ctx, "migrate-set-capabilities", map[string]any{
		"capabilities": []map[string]any{{"capability": "x-ignore-shared", "state": true}},
	})
	if err != nil {
		return err
	}
	_, err = c.client.Execute(ctx, "getfd", map[string]any{"fdname": stateFile}, int(f.Fd()))
	return err
}

// Save implements Controller.
func (c qemuControl) Save(ctx context.Context, to *os.File) error {
	if err := c.prepare(ctx, to); err != nil {
		return err
	}
	if err := c.do(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": migrationSpeed}); err != nil {
		return err
	}
	if err := c.do(ctx, "migrate", map[string]any{"uri": "fd:" + stateFile}); err != nil {
		return err
	}
	return c.await(ctx, "query-migrate", "completed")
}

// Load implements Controller.
func (c qemuControl) Load(ctx context.Context, from *os.File) error {
	if err := c.prepare(ctx, from); err != nil {
		return err
	}
	if err := c.do(ctx, "migrate-incoming", map[string]any{"uri": "fd:" + stateFile}); err != nil {
		return err
	}
	return c.await(ctx, "query-status", "paused")
}

// pollInterval is the pause between two questions for the progress of a save or a load.
const pollInterval = time.Millisecond

// await repeats a query until it returns a status. QEMU ends when a state cannot be loaded.
func (c qemuControl) await(ctx context.Context, query, want string) error {
	for {
		answer, err := c.client.Execute(ctx, query, nil, -1)
		if err != nil {
			return err
		}
		var a struct {
			Status string `json:"status"`
			Desc   string `json:"error-desc"`
		}
		if err := json.Unmarshal(answer, &a); err != nil {
			return fmt.Errorf("%s: %w", query, errors.Join(qmp.ErrProtocol, err))
		}
		switch a.Status {
		case want:
			return nil
		case "failed", "cancelled", "internal-error", "running", "postmigrate":
			return fmt.Errorf("%s: the status is %s instead of %s: %.500q", query, a.Status, want, a.Desc)
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
