package microvm

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/jail"
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/engine/microvm/bootfiles"
	"github.com/crannog/crannog/internal/engine/microvm/keeper"
	"github.com/crannog/crannog/internal/engine/microvm/machine"
	"github.com/crannog/crannog/internal/engine/microvm/vmm"
	"github.com/crannog/crannog/internal/fault"
)

const (
	// guestTasks is the number of processes that are reserved for the guest, beyond the limit.
	// Without them, the guest could not start a command once programs have reached the limit.
	guestTasks = 64
	// hostTasks bounds the threads of the machine and its keeper on the host.
	hostTasks = 512
	// hostMemory is the memory that QEMU and the keeper may need on the host in addition to the
	// machine's, including translated code if QEMU emulates the processor.
	hostMemory = 384 << 20
	// seedBytes is the number of random bytes that a machine receives.
	seedBytes = 64
)

// started is a machine whose keeper runs.
type started struct {
	cmd    *exec.Cmd
	input  *os.File // read by the keeper, the machine's first process and the guest
	output *os.File // the output of the machine at its boot port
}

func (s *started) close() { _, _ = s.input.Close(), s.output.Close() } // everything is written, or no longer needed

// make starts the sandbox and returns when its guest is ready.
func (b *instance) make(ctx context.Context, spec engine.Spec) (err error) {
	if err := b.rec.write(b.dir); err != nil {
		return err
	}
	boot, err := bootfiles.Make(b.e.bootDir(), b.e.o.Kernel, b.e.o.Guest)
	if err != nil {
		return noKernel(err)
	}
	disk, view, err := b.e.rootDisk(ctx, spec.Image)
	if err != nil {
		return err
	}
	own, trees, err := b.ownDisk(ctx, spec, view)
	if err != nil {
		return err
	}
	request := b.e.request(spec, trees)
	m := vmm.Machine{
		Name: Tag(b.e.dir) + "-" + spec.ID, Emulate: b.e.o.Emulate, Kernel: boot.Kernel, FirstRoot: boot.FirstRoot, Program: machine.Argument + " " + spec.Image.Guest,
		MemoryBytes: spec.Limits.MemoryBytes, Processors: spec.Limits.Processors(),
	}
	disks := map[string]string{machine.RootDisk: disk}
	if own != "" {
		disks[machine.OwnDisk] = own
	}
	request.Disks = serials(disks)
	if b.e.groups != nil {
		limits := spec.Limits
		limits.MemoryBytes += hostMemory
		// A crash before the next record leaves an empty group of this name, which Remove finds by
		// name.
		if b.rec.Group, err = b.e.groups.CreateFor(groupName(spec.ID), limits, hostTasks); err != nil {
			return err
		}
	}
	s, err := b.start(keeper.Request{QEMU: b.e.qemu, Machine: m, Disks: request.Disks, Network: request.Network}, disks, spec.Egress.End)
	if err != nil {
		return err
	}
	defer s.close()
	b.rec.Keeper, err = b.Start(s.cmd)
	// If ctx is done, the keeper is killed, which ends every wait for the machine.
	stop := context.AfterFunc(ctx, func() { _ = s.cmd.Process.Kill() })
	defer stop()
	if err != nil {
		return err
	}
	if err := b.rec.write(b.dir); err != nil {
		return err
	}
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	go func() {
		// An error means that the keeper has ended, which the code that waits for the guest
		// notices.
		_, _ = io.Copy(s.input, io.MultiReader(bytes.NewReader(append(line, '\n')), spec.Boot.Stream()))
	}()
	return b.awaitGuest(ctx, s.output)
}

// serials lists the serial numbers of disks, the image first.
func serials(disks map[string]string) (list []string) {
	for _, serial := range []string{machine.RootDisk, machine.OwnDisk} {
		if disks[serial] != "" {
			list = append(list, serial)
		}
	}
	return list
}

// request returns the request for the machine's first process.
func (e *Engine) request(spec engine.Spec, trees []setup.Tree) machine.Request {
	r := machine.Request{Network: spec.Egress.Connected(), Tasks: spec.Limits.PIDs + guestTasks, Time: time.Now(), Seed: make([]byte, seedBytes)}
	_, _ = rand.Read(r.Seed) // it does not fail
	r.Root = setup.Request{
		Hostname: spec.Hostname, Trees: append([]setup.Tree{{Target: "/", Source: machine.RootMount}}, trees...), Links: spec.Links,
		Hide: spec.Hide, Absent: spec.Absent, ReadOnly: spec.ReadOnly, Limits: e.Info().Hold(spec.Limits), CPUs: spec.Limits.Processors(),
	}
	return r
}

// Tag returns the first part of the names of machines in process lists, for a directory of the
// engine.
func Tag(dir string) string { return jail.Tag(dir) }

// start starts the keeper, with the machine's end of its network if there is one.
func (b *instance) start(r keeper.Request, disks map[string]string, network *os.File) (_ *started, err error) {
	var childFiles []*os.File
	defer func() {
		for _, f := range childFiles {
			f.Close()
		}
	}()
	listener, err := sandboxdir.Listen(b.dir)
	if err != nil {
		return nil, err
	}
	childFiles = append(childFiles, listener)
	output, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	childFiles = append(childFiles, out)
	in, input, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, output.Close())
	}
	s := &started{input: input, output: output}
	defer func() {
		in.Close()
		if err != nil {
			s.close()
		}
	}()
	for _, name := range []string{exitName, processName} {
		f, err := os.OpenFile(filepath.Join(b.dir, name), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		childFiles = append(childFiles, f)
	}
	for _, serial := range r.Disks {
		f, err := os.Open(disks[serial])
		if err != nil {
			return nil, err
		}
		childFiles = append(childFiles, f)
	}
	extraFiles := childFiles
	if network != nil {
		// The caller closes the network's end. The slice is copied, because childFiles are closed
		// here.
		extraFiles = append(slices.Clone(childFiles), network)
	}
	s.cmd = exec.Command("/proc/self/exe") //nolint:noctx // it outlives the call
	s.cmd.Args = []string{keeper.Arg0, r.Machine.Name}
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	s.cmd.Stdin, s.cmd.ExtraFiles = in, extraFiles
	// Signals of the server's terminal must not reach its sandboxes.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	start := s.cmd.Start
	if b.rec.Group != nil {
		// The limits are in force before the keeper starts.
		start = func() error { return b.rec.Group.Start(s.cmd) }
	}
	if err := start(); err != nil {
		return nil, fmt.Errorf("start the keeper: %w", err)
	}
	line, err := json.Marshal(r)
	if err == nil {
		_, err = input.Write(append(line, '\n'))
	}
	if err != nil {
		return nil, errors.Join(err, s.cmd.Process.Kill(), s.cmd.Wait())
	}
	return s, nil
}

// awaitGuest returns when the guest is ready.
func (b *instance) awaitGuest(ctx context.Context, output *os.File) error {
	reader := bufio.NewReader(output)
	err := awaitHello(ctx, output, reader, b.e.o.Emulate)
	if err == nil {
		err = answer(reader)
	}
	if err == nil {
		err = engine.AwaitReady(ctx, outputStream{reader, output})
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	if _, known := errors.AsType[*fault.Error](err); known {
		return err
	}
	if text := b.lastOutput(); text != "" {
		return fmt.Errorf("%w; the machine printed: %s", err, text)
	}
	return err
}

// lastOutput returns the last output of a machine that failed. The machine ends by itself after an
// error, and its keeper records the text.
func (b *instance) lastOutput() string {
	select {
	case <-b.Reaped():
	case <-time.After(endTime):
	}
	exit, _ := b.recordedExit()
	return exit.Text
}

// endTime bounds how long a machine takes to end by itself.
const endTime = 5 * time.Second

// outputStream is the output of a machine, whose beginning has been read.
type outputStream struct {
	*bufio.Reader
	io.Closer
}

// kernelTime bounds how long a kernel on the processor's virtualization takes until its first
// process runs. If /dev/kvm can be opened but does not work, the kernel never reaches that point.
const kernelTime = 20 * time.Second

// awaitHello returns when the machine's first process runs.
func awaitHello(ctx context.Context, output *os.File, reader *bufio.Reader, emulated bool) error {
	defer context.AfterFunc(ctx, func() { _ = output.SetReadDeadline(time.Unix(1, 0)) })()
	if !emulated {
		if err := output.SetReadDeadline(time.Now().Add(kernelTime)); err != nil {
			return err
		}
	}
	line, err := reader.ReadString('\n')
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.Newf(fault.Unsupported, codeKVM, "the kernel of a virtual machine did not start within %s: /dev/kvm can be opened but does not work", kernelTime).WithHint(kvmHint)
	case err != nil:
		return errors.New("the machine ended before its first process ran")
	case strings.TrimSpace(line) != machine.Hello:
		return fmt.Errorf("unexpected output of the machine: %q", line)
	}
	return output.SetReadDeadline(time.Time{})
}

// answer reads the result of the request.
func answer(reader *bufio.Reader) error {
	line, err := reader.ReadBytes('\n')
	if err != nil {
		return errors.New("the machine ended before its root was built")
	}
	var a machine.Answer
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("unexpected output of the machine: %q: %w", line, err)
	}
	switch {
	case a.Refused:
		return fault.Newf(fault.Invalid, "path_not_covered", "a path of the policy cannot be hidden or protected: %s", a.Error).
			WithHint("name paths that exist in the sandbox, without symbolic links at their end")
	case a.Error != "":
		return errors.New(a.Error)
	}
	return nil
}
