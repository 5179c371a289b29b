package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// Create implements engine.Engine.
func (e *Engine) Create(ctx context.Context, spec engine.Spec) error {
	if err := prepareSpec(&spec); err != nil {
		return err
	}
	err := e.create(ctx, spec)
	if endedEarly(err) && ctx.Err() == nil {
		// On a busy host, gVisor sometimes mistakes the guest's host process for dead and kills it.
		// A second attempt gets a new kernel, which shares nothing with the first.
		e.log.Warn("the guest was killed before it was ready; starting it again", "sandbox", spec.ID, "err", err)
		err = e.create(ctx, spec)
	}
	return err
}

// create starts the sandbox in a new kernel. After an error nothing of the sandbox is left.
func (e *Engine) create(ctx context.Context, spec engine.Spec) error {
	k, err := e.newKernel(ctx, spec, e.kernelName(spec), e.instanceDir(spec.ID))
	if err != nil {
		return err
	}
	return e.launch(ctx, k, spec, "")
}

// specInfo is the part of Info for checking specifications. It does not depend on the state of the
// host.
var specInfo = engine.Info{
	Name: "gvisor", Images: imageKinds, Egress: egressKinds, Capabilities: []engine.Capability{engine.CanObserve}, Volumes: os.Geteuid() == 0, Containers: true,
	TakesWorkspace: true,
}

// prepareSpec checks a specification and fills in the default limits.
func prepareSpec(spec *engine.Spec) error {
	if err := spec.Check(specInfo); err != nil {
		return err
	}
	spec.Limits = spec.Limits.OrDefault()
	return spec.CheckEvents()
}

// launch starts the guest in a kernel, or restores the state in stateDir unless that is "", and
// registers the sandbox. After an error nothing of the sandbox is left.
func (e *Engine) launch(ctx context.Context, k *kernel, spec engine.Spec, stateDir string) error {
	if err := e.startWithPriority(ctx, k, spec, stateDir); err != nil {
		k.discard()
		return e.explain(spec.ID, err)
	}
	e.publish(k.b)
	return nil
}

// startWithPriority starts a sandbox. An unhurried sandbox yields the processors to others until it
// is ready.
func (e *Engine) startWithPriority(ctx context.Context, k *kernel, spec engine.Spec, stateDir string) error {
	if !spec.Unhurried {
		return e.start(ctx, k, spec, stateDir)
	}
	// A prestarted kernel was created before its sandbox was known.
	if err := k.setYield(true); err != nil {
		return err
	}
	if err := e.start(ctx, k, spec, stateDir); err != nil {
		return err
	}
	return k.setYield(false)
}

// publish registers a running sandbox and watches for its end.
func (e *Engine) publish(b *instance) {
	e.mu.Lock()
	e.instances[b.rec.ID] = b
	e.mu.Unlock()
	e.balance.Add(b.rec.Group)
	b.watch()
}

// start runs the guest and returns when it is ready.
func (e *Engine) start(ctx context.Context, k *kernel, spec engine.Spec, stateDir string) error {
	k.times.wanted = time.Now()
	go k.config.send(spec.Boot.Stream())
	// The network comes first, because gVisor does not read it later.
	network := loopback()
	if spec.Egress.Connected() {
		network = linked(spec.Egress.End)
	}
	network.IsRestore = stateDir != ""
	err := k.call(ctx, func(conn *urpc.Client) error {
		if err := observe(conn, spec, stateDir != ""); err != nil {
			return err
		}
		if err := conn.Call(boot.ContMgrSetNetworkArgs, network, nil); err != nil {
			return fmt.Errorf("network: %w", err)
		}
		if stateDir == "" {
			return conn.Call(boot.ContMgrRootContainerStart, &k.b.rec.Kernel, nil)
		}
		return resume(conn, stateDir)
	})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	k.b.boundMemory() // after a restore, other programs may already run
	k.times.started = time.Now()
	err = engine.AwaitReady(ctx, k.output)
	k.output = nil
	if errors.Is(err, engine.ErrSilent) {
		return k.b.silentEnd(ctx)
	}
	if err != nil {
		return err
	}
	k.times.log(e.log, spec.ID)
	return nil
}

// startFault explains why a process in new namespaces did not start. If the limit of user
// namespaces is reached or zero, the kernel returns "no space" or "too many users" rather than "not
// permitted".
func (e *Engine) startFault(err error) error {
	for _, errno := range []error{syscall.EPERM, syscall.EACCES, syscall.ENOSPC, syscall.EUSERS, syscall.EINVAL} {
		if e.rootless && errors.Is(err, errno) {
			return fault.Wrap(err, fault.Unsupported, "user_namespaces_unavailable",
				"on this host, this user cannot create user namespaces").WithHint(hostSysctls.userNamespaceHint())
		}
	}
	if errors.Is(err, syscall.EBADF) {
		var files unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil && files.Cur <= highDescriptor {
			return fault.Wrap(err, fault.Unsupported, "open_files_limit",
				fmt.Sprintf("the limit of open files is %d, and a sandbox's kernel needs %d while it starts", files.Cur, recommendedFiles)).
				WithHint(fmt.Sprintf("raise the limit: ulimit -n %d, or LimitNOFILE= in the unit of a service", recommendedFiles))
		}
	}
	return fmt.Errorf("start gvisor: %w", err)
}

// recommendedFiles is the limit of open files to recommend if the present limit is too low.
const recommendedFiles = 1024

// explain converts errors that a user can resolve into faults.
func (e *Engine) explain(id string, err error) error {
	if _, known := errors.AsType[*fault.Error](err); known {
		return err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.Timeout, "create_timeout", "the sandbox did not start in time")
	case errors.Is(err, context.Canceled):
		return fault.Wrap(err, fault.Canceled, "canceled", "the caller canceled the request while the sandbox started")
	case e.rootless && strings.Contains(err.Error(), "operation not permitted"):
		return fault.Wrap(err, fault.Unsupported, "user_namespaces_unavailable",
			"on this host, this user cannot create user namespaces").WithHint(hostSysctls.userNamespaceHint())
	}
	return fault.Wrap(err, fault.Unavailable, "engine_failed", fmt.Sprintf("sandbox %s did not start: %v", id, err))
}

// drainTime bounds how long the output of a dead child is read, because an unknown process may hold
// the output open.
const drainTime = 2 * time.Second

// drain returns the remaining output of a dead child.
func drain(r *os.File) string {
	_ = r.SetReadDeadline(time.Now().Add(drainTime)) // without a deadline, the read still ends with the child's processes
	data, _ := io.ReadAll(io.LimitReader(r, 64<<10))
	return strings.TrimSpace(string(data))
}
