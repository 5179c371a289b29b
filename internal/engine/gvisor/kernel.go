package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/gvisor/owners"
	"github.com/crannog/crannog/internal/engine/linux/ocispec"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// kernel is a sandbox in which no program runs yet. Its processes, root and limits exist, and a
// guest can be started or restored in it.
type kernel struct {
	b *instance
	kernelKind
	config pipe     // our end of the guest's standard input
	output *os.File // the guest's output
	times  timeline
}

// discard frees all resources of a kernel that will not be used.
func (k *kernel) discard() {
	k.close()
	// The cleanup does not use the caller's context, whose end may have caused the failure.
	if err := k.b.destroy(); err != nil {
		k.b.e.log.Error("undo create", "sandbox", k.b.rec.ID, "err", err)
	}
}

// close closes the server's ends of the pipes.
func (k *kernel) close() {
	k.config.close()
	if k.output != nil {
		k.output.Close()
	}
}

// newKernel creates a kernel in a new directory. After an error nothing of the kernel is left.
func (e *Engine) newKernel(ctx context.Context, spec engine.Spec, name, dir string) (*kernel, error) {
	return e.newKernelOn(ctx, kernelKind{platform: systrapName}, spec, name, dir)
}

// newKernelOn is newKernel for a kind of kernel.
func (e *Engine) newKernelOn(ctx context.Context, kind kernelKind, spec engine.Spec, name, dir string) (_ *kernel, err error) {
	if e.groups == nil && spec.Limits.MilliCPU%1000 != 0 {
		return nil, fault.New(fault.Unsupported, "limit_not_enforced", "without control groups, CPU can be limited to whole processors only").
			WithHint("request a whole number of CPUs, or give this user a writable control group; crannog doctor says how")
	}
	self, err := process.Identify(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", spec.ID, err)
	}
	requested := time.Now()
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, taken(spec.ID)
		}
		return nil, fmt.Errorf("create %s: %w", spec.ID, err)
	}
	bare := spec.Bare()
	rec := record{ID: spec.ID, Kernel: name, Created: requested, Creator: self, Limits: spec.Limits, Spec: &bare}
	k := &kernel{b: newInstance(e, rec, dir), kernelKind: kind}
	defer func() {
		if err != nil {
			k.discard()
		}
	}()
	if err := rec.write(dir); err != nil {
		return nil, fmt.Errorf("create %s: %w", spec.ID, err)
	}
	if e.groups != nil {
		// The record does not have the group yet. After a crash before it does, only empty groups
		// are left, which Remove finds by this name.
		if k.b.rec.Group, err = e.groups.Create(name, spec.Limits); err != nil {
			return nil, fmt.Errorf("create %s: %w", spec.ID, err)
		}
	}
	if spec.Unhurried {
		if err := k.setYield(true); err != nil {
			return nil, err
		}
	}
	k.times.asked, k.times.forked = requested, time.Now()
	result, err := e.boot(ctx, spec, k)
	if err != nil {
		return nil, e.explain(spec.ID, err)
	}
	forked := k.times.forked
	k.times = result.Times
	k.times.asked, k.times.forked, k.times.answered = requested, forked, time.Now()
	k.b.rec.Sentry, k.b.rec.Gofer, k.b.rec.Socket = result.Sentry, result.Gofer, result.Socket
	k.b.conns.setSocket(result.Socket)
	if err := k.b.rec.write(dir); err != nil {
		return nil, fmt.Errorf("create %s: %w", spec.ID, err)
	}
	return k, nil
}

// setYield gives other sandboxes priority over this one, or ends that. Without control groups it
// does nothing.
func (k *kernel) setYield(yields bool) error {
	if k.b.rec.Group == nil {
		return nil
	}
	if err := k.b.rec.Group.Yield(yields); err != nil {
		return fmt.Errorf("weight of %s: %w", k.b.rec.Kernel, err)
	}
	return nil
}

// taken returns the fault for an ID in use.
func taken(id string) error {
	return fault.Newf(fault.Exists, "sandbox_exists", "sandbox %q exists", id)
}

// boot runs the child that creates the kernel.
func (e *Engine) boot(ctx context.Context, spec engine.Spec, k *kernel) (bootResult, error) {
	var result bootResult
	plan, err := ownersOf(spec)
	if err != nil {
		return result, err
	}
	sandboxEnds, channel, err := makeChannel(k.b.dir)
	if err != nil {
		return result, err
	}
	defer closeFiles(sandboxEnds)
	k.b.mu.Lock()
	k.b.channel = channel
	k.b.mu.Unlock()
	p, err := newPipes()
	if err != nil {
		return result, err
	}
	cmd := exec.CommandContext(ctx, e.runtime)
	cmd.Args = []string{bootArg0, k.b.rec.Kernel}
	// The child does not work in parallel. gVisor removes this setting from the environment of the
	// processes that it starts.
	cmd.Env = []string{"GOMAXPROCS=1"}
	if e.rootless {
		cmd.Env = append(cmd.Env, "CRANNOG_ROOTLESS=1")
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.config.read, p.output.write, p.output.write
	cmd.ExtraFiles = make([]*os.File, highDescriptor-2)
	cmd.ExtraFiles[0], cmd.ExtraFiles[1] = p.request.read, p.result.write
	cmd.ExtraFiles[channelDescriptor-3], cmd.ExtraFiles[channelDescriptor-2] = sandboxEnds[0], sandboxEnds[1]
	cmd.ExtraFiles[highDescriptor-3] = p.request.read
	cmd.SysProcAttr = e.bootAttr()
	start := cmd.Start
	if k.b.rec.Group != nil {
		// The limits are in force before the process starts.
		start = func() error { return k.b.rec.Group.Start(cmd) }
	}
	if err := start(); err != nil {
		p.closeAll()
		return result, e.startFault(err)
	}
	p.closeChildEnds()
	k.config, k.output = pipe{write: p.config.write}, p.output.read
	request, err := json.Marshal(e.bootRequest(spec, k, plan))
	if err != nil {
		request = nil
	}
	go p.request.send(bytes.NewReader(request))
	decodeErr := json.NewDecoder(p.result.read).Decode(&result)
	p.result.read.Close()
	waitErr := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case decodeErr != nil:
		// A kernel that the child has started would keep the output open.
		_ = k.b.killUntracked() // the cleanup repeats this, and reports errors
		err = fmt.Errorf("gvisor child: %w (%v): %s", decodeErr, waitErr, drain(k.output))
	case result.Refused:
		err = fault.Newf(fault.Invalid, "path_not_covered", "a path of the policy cannot be hidden or protected: %s", result.Error).
			WithHint("name paths that exist in the sandbox, without symbolic links at their end")
	case result.Error != "":
		err = fmt.Errorf("gvisor: %s", result.Error)
	}
	if err != nil {
		// An interrupted child may have left processes that no record names. The kernel's name in
		// their arguments identifies them.
		_ = k.b.killUntracked() // the cleanup repeats this, and reports errors
	}
	return result, err
}

// bootRequest returns the request for the child that creates a kernel.
func (e *Engine) bootRequest(spec engine.Spec, k *kernel, plan owners.Plan) bootRequest {
	b := k.b
	req := bootRequest{
		ID:          b.rec.Kernel,
		SandboxDir:  b.dir,
		RuntimeRoot: e.runtimeRoot(),
		Root:        spec.Image.View(),
		Workspace:   spec.Workspace,
		Mounts:      spec.Mounts,
		Volumes:     spec.Volumes,
		Links:       spec.Links,
		StandIns:    spec.StandIns,
		Limits:      spec.Limits,
		Hide:        spec.Hide,
		Absent:      spec.Absent,
		ReadOnly:    spec.ReadOnly,
		Owners:      plan,
		Platform:    k.platform,
		Containers:  spec.Containers,
		OCI: ocispec.Build(ocispec.Params{
			RootPath:  e.rootPoint(),
			Guest:     spec.Image.Guest,
			Arguments: []string{guestboot.ChannelFlag},
			Hostname:  spec.Hostname,
			Limits:    spec.Limits,
			SetID:     spec.SetID,

			Containers: spec.Containers,
		}),
	}
	if file := packedRoot(spec); file != "" {
		req.usePacked(file)
	}
	if len(k.inherited) > 0 {
		req.Owners = owners.Plan{}
		req.OCI.Process.Capabilities.Inheritable = k.inherited
	}
	if cpus := int((spec.Limits.MilliCPU + 999) / 1000); b.rec.Group == nil && cpus < runtime.NumCPU() {
		req.CPUs = cpus
	}
	return req
}

// bootAttr returns attributes that give the child its own mount namespace and, without root, a user
// namespace in which it may mount.
func (e *Engine) bootAttr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS,
		// Signals of the server's terminal must not reach its sandboxes.
		Setsid: true,
	}
	if e.rootless {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}
