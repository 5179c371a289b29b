package gvisor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/ocispec"
	"github.com/crannog/crannog/internal/fault"
)

// Create implements engine.Engine.
func (e *Engine) Create(ctx context.Context, spec engine.Spec) (err error) {
	if !validID(spec.ID) {
		return fault.Newf(fault.Invalid, "invalid_id", "sandbox ID %q is not 1 to 40 of [a-z0-9]", spec.ID)
	}
	asked := time.Now()
	spec.Limits = spec.Limits.OrDefault()
	if e.groups == nil && spec.Limits.MilliCPU%1000 != 0 {
		return fault.New(fault.Unsupported, "limit_not_enforced", "without control groups CPU is bounded by whole processors only").
			WithHint("ask for a whole number of CPUs, or let this user write a control group; crannog doctor says how")
	}
	dir := e.boxDir(spec.ID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fault.Newf(fault.Exists, "sandbox_exists", "sandbox %q exists", spec.ID)
		}
		return fmt.Errorf("create %s: %w", spec.ID, err)
	}
	rec := record{ID: spec.ID, Created: asked, Creator: processOf(os.Getpid()), Limits: spec.Limits}
	b := newBox(e, rec)
	defer func() {
		if err == nil {
			return
		}
		// The context may be what failed; the cleanup has its own time.
		if undo := b.destroy(); undo != nil {
			e.log.Error("undo create", "sandbox", spec.ID, "err", undo)
		}
	}()
	if err := rec.write(dir); err != nil {
		return fmt.Errorf("create %s: %w", spec.ID, err)
	}
	if e.groups != nil {
		// The group's directories are known before they are made, but a crash
		// in between leaves only empty groups of this name, which Remove
		// looks for by name.
		if b.rec.Group, err = e.groups.Create(spec.ID, spec.Limits); err != nil {
			return fmt.Errorf("create %s: %w", spec.ID, err)
		}
	}
	forked := time.Now()
	result, ready, err := e.boot(ctx, spec, b)
	if err != nil {
		return e.explain(spec.ID, err)
	}
	result.Times.asked, result.Times.forked, result.Times.heard = asked, forked, time.Now()
	b.rec.Sentry, b.rec.Gofer, b.rec.Socket = result.Sentry, result.Gofer, result.Socket
	if err := b.rec.write(dir); err != nil {
		ready.Close()
		return fmt.Errorf("create %s: %w", spec.ID, err)
	}
	if err := awaitReady(ctx, ready); err != nil {
		return e.explain(spec.ID, err)
	}
	result.Times.log(e.log, spec.ID)
	e.mu.Lock()
	e.boxes[spec.ID] = b
	e.mu.Unlock()
	b.watch()
	return nil
}

// boot runs the child that creates the box. The returned pipe carries what
// the guest prints until it is ready.
func (e *Engine) boot(ctx context.Context, spec engine.Spec, b *box) (bootResult, *os.File, error) {
	var result bootResult
	pipes, err := newPipes()
	if err != nil {
		return result, nil, err
	}
	defer pipes.closeChildEnds()
	cmd := exec.CommandContext(ctx, e.runtime)
	cmd.Args = []string{bootArg0, spec.ID}
	cmd.Env = []string{}
	if e.rootless {
		cmd.Env = append(cmd.Env, "CRANNOG_ROOTLESS=1")
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pipes.config.read, pipes.output.write, pipes.output.write
	cmd.ExtraFiles = make([]*os.File, highDescriptor-2)
	cmd.ExtraFiles[0], cmd.ExtraFiles[1] = pipes.request.read, pipes.result.write
	cmd.ExtraFiles[linkDescriptor-3] = spec.Link
	cmd.ExtraFiles[channelDescriptor-3] = pipes.boxChannel
	cmd.ExtraFiles[highDescriptor-3] = pipes.request.read
	cmd.SysProcAttr = e.bootAttr()
	start := cmd.Start
	if b.rec.Group != nil {
		// The box is under its limits before anything of it exists.
		start = func() error { return b.rec.Group.Start(cmd) }
	}
	if err := start(); err != nil {
		pipes.closeAll()
		return result, nil, e.startFault(err)
	}
	pipes.closeChildEnds()
	go pipes.config.send(spec.GuestConfig)
	request, err := json.Marshal(e.bootRequest(spec, b))
	if err != nil {
		request = nil
	}
	go pipes.request.send(request)
	decodeErr := json.NewDecoder(pipes.result.read).Decode(&result)
	pipes.result.read.Close()
	waitErr := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case decodeErr != nil:
		err = fmt.Errorf("gvisor child: %w (%v): %s", decodeErr, waitErr, drain(pipes.output.read))
	case result.Refused:
		err = fault.Newf(fault.Invalid, "path_not_covered", "a path of the policy cannot be hidden or protected: %s", result.Error).
			WithHint("name paths that exist in the sandbox, without symbolic links at their end")
	case result.Error != "":
		err = fmt.Errorf("gvisor: %s", result.Error)
	}
	if err != nil {
		pipes.channel.Close()
		// A child that was cut short may have left processes that no record
		// names; they are found by the box's name in their arguments.
		b.killStrays()
		pipes.output.read.Close()
		return result, nil, err
	}
	b.keepFirst(pipes.channel)
	return result, pipes.output.read, nil
}

func (e *Engine) bootRequest(spec engine.Spec, b *box) bootRequest {
	req := bootRequest{
		ID:          spec.ID,
		BoxDir:      e.boxDir(spec.ID),
		RuntimeRoot: e.runtimeRoot(),
		Root:        spec.Root,
		Workspace:   spec.Workspace,
		Limits:      spec.Limits,
		Link:        spec.Link != nil,
		Hide:        spec.Hide,
		ReadOnly:    spec.ReadOnly,
		OCI: ocispec.Build(ocispec.Params{
			RootPath: e.rootPoint(),
			Guest:    spec.Root.Guest,
			Hostname: spec.Hostname,
			Limits:   spec.Limits,
		}),
	}
	if cpus := int((spec.Limits.MilliCPU + 999) / 1000); b.rec.Group == nil && cpus < runtime.NumCPU() {
		req.CPUs = cpus
	}
	return req
}

// bootAttr gives the child its own mount namespace, and without root a user
// namespace in which it may mount.
func (e *Engine) bootAttr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS,
		// Signals for the server's terminal are not for its boxes.
		Setsid: true,
	}
	if e.rootless {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

// awaitReady reads what the guest prints until it says that it listens. It
// closes the pipe: the guest has let go of it by then.
func awaitReady(ctx context.Context, output *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = output.SetReadDeadline(time.Now()) })
	defer output.Close()
	defer stop()
	var said bytes.Buffer
	lines := bufio.NewScanner(io.LimitReader(output, 64<<10))
	for lines.Scan() {
		if lines.Text() == engine.GuestReady {
			return nil
		}
		said.WriteString(lines.Text() + "\n")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return fmt.Errorf("the guest ended before it was ready: %s", strings.TrimSpace(said.String()))
}

// startFault explains why a process in new namespaces did not start. Where
// user namespaces are used up or switched off, the kernel says "no space" or
// "too many users" rather than "not permitted".
func (e *Engine) startFault(err error) error {
	for _, refusal := range []error{syscall.EPERM, syscall.EACCES, syscall.ENOSPC, syscall.EUSERS, syscall.EINVAL} {
		if e.rootless && errors.Is(err, refusal) {
			return fault.Wrap(err, fault.Unsupported, "user_namespaces_unavailable",
				"this host does not let this user create user namespaces").WithHint(userNamespaceHint())
		}
	}
	return fmt.Errorf("start gvisor: %w", err)
}

// explain turns the errors that a user can do something about into faults.
func (e *Engine) explain(id string, err error) error {
	if _, known := errors.AsType[*fault.Error](err); known {
		return err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.Timeout, "create_timeout", "the sandbox did not start in time")
	case errors.Is(err, context.Canceled):
		return fault.Wrap(err, fault.Canceled, "canceled", "the caller went away while the sandbox started")
	case e.rootless && strings.Contains(err.Error(), "operation not permitted"):
		return fault.Wrap(err, fault.Unsupported, "user_namespaces_unavailable",
			"this host does not let this user create user namespaces").WithHint(userNamespaceHint())
	}
	return fault.Wrap(err, fault.Unavailable, "engine_failed", fmt.Sprintf("sandbox %s did not start: %v", id, err))
}

func drain(r io.Reader) string {
	data, _ := io.ReadAll(io.LimitReader(r, 64<<10))
	return strings.TrimSpace(string(data))
}
