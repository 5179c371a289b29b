package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/holes"
	"github.com/crannog/crannog/internal/fault"
)

// architecture is a part of the format of saved states.
const architecture = runtime.GOARCH

// Archive implements engine.Archiver. gVisor reads each file as a whole into its kernel's memory
// before it writes the file. A large file would therefore kill the sandbox, and a file with holes
// may be larger than any memory. Archive instead reads from a copy of the sandbox, in which nothing
// runs and which may use more memory.
func (e *Engine) Archive(ctx context.Context, id string, w io.Writer) (err error) {
	b, err := e.find(id)
	if err != nil {
		return err
	}
	if b.rec.Spec == nil {
		return fault.Newf(fault.Conflict, "sandbox_too_old", "sandbox %q was created by an earlier version, which did not store enough to copy it", id)
	}
	// The directory has the name of a prestarted kernel's directory, so that the cleanup of dead
	// processes also removes it after a crash. It can be as large as the sandbox's memory.
	dir, err := e.prestartedDirOf(uniqueName(*b.rec.Spec))
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return saveFault(id, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := e.Checkpoint(ctx, id, dir); err != nil {
		return err
	}
	spec := *b.rec.Spec
	spec.ID = id // records have it elsewhere
	return e.Extract(ctx, spec, dir, w)
}

// Extract implements engine.Archiver.
func (e *Engine) Extract(ctx context.Context, spec engine.Spec, dir string, w io.Writer) error {
	id := spec.ID
	spec = spec.Bare()
	spec.Limits = spec.Limits.OrDefault()
	spec.Limits.MemoryBytes = max(spec.Limits.MemoryBytes, prestartedMemory())
	kind, err := kindToRestore(idlePlatformName, dir)
	if err != nil {
		return err
	}
	k, err := e.newPrestartedOn(ctx, kind, spec)
	if err != nil {
		return err
	}
	defer k.discard()
	if err := k.writeFiles(ctx, dir, w); err != nil {
		// An error of w, such as a full disk or a closed pipe, also makes the kernel's write fail.
		if _, ofWriter := errors.AsType[*holes.CopyError](err); !ofWriter && k.died(err) {
			return fault.Wrap(err, fault.Exhausted, "file_too_large", fmt.Sprintf("a file of sandbox %q is larger than the memory of this host allows to copy, holes included", id)).
				WithHint("remove the file, or save the sandbox with its memory")
		}
		return saveFault(id, fmt.Errorf("files: %w", err))
	}
	return nil
}

// writeFiles makes a kernel restore a saved state without running its programs, and writes its
// files to w.
func (k *kernel) writeFiles(ctx context.Context, dir string, w io.Writer) error {
	// The guest waits for the rest of its configuration, which is never sent.
	if _, err := k.config.write.WriteString("{"); err != nil {
		return err
	}
	err := k.call(ctx, func(conn *urpc.Client) error {
		network := loopback()
		network.IsRestore = true
		if err := conn.Call(boot.ContMgrSetNetworkArgs, network, nil); err != nil {
			return fmt.Errorf("network: %w", err)
		}
		return resume(conn, dir)
	})
	if err != nil {
		return err
	}
	k.b.boundMemory()
	// When gVisor loads the state, it replaces the handlers of its control calls and closes their
	// connections, so the next call needs a new connection.
	return k.call(ctx, func(conn *urpc.Client) error {
		if err := conn.Call(boot.ContMgrPause, nil, nil); err != nil {
			return fmt.Errorf("pause: %w", err)
		}
		return holes.Through(w, func(in *os.File) error {
			opts := control.TarRootfsUpperLayerOpts{ContainerID: k.b.rec.Kernel, FilePayload: urpc.FilePayload{Files: []*os.File{in}}}
			return conn.Call(boot.FsTarRootfsUpperLayer, &opts, nil)
		})
	})
}

// call makes a call on a separate connection, and gives up when the context ends.
func (k *kernel) call(ctx context.Context, do func(*urpc.Client) error) error {
	conn, err := connectControl(ctx, k.b.rec.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer abortWithContext(ctx, conn)()
	if err := do(conn); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// died reports whether an error shows that the kernel has ended, or is about to.
func (k *kernel) died(err error) bool {
	return !k.b.rec.Sentry.Alive() || strings.Contains(err.Error(), io.EOF.Error()) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
}

// prestartedMemory returns how much memory a copy may use temporarily: half of the host's free
// memory.
func prestartedMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return engine.DefaultLimits.MemoryBytes
	}
	return int64(info.Freeram+info.Bufferram) * int64(info.Unit) / 2
}
