package microvm

import (
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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/jail"
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/engine/microvm/bootfiles"
	"github.com/crannog/crannog/internal/engine/microvm/keeper"
	"github.com/crannog/crannog/internal/engine/microvm/machine"
	"github.com/crannog/crannog/internal/engine/microvm/vmm"
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

// make starts the sandbox and returns when its guest is ready. If from is not nil, the sandbox
// continues from that state.
func (b *instance) make(ctx context.Context, spec engine.Spec, from *state) (err error) {
	if err := b.rec.write(b.dir); err != nil {
		return err
	}
	boot, err := bootfiles.Make(b.e.bootDir(), b.e.o.Kernel, b.e.o.Guest)
	if err != nil {
		return noKernel(err)
	}
	var trees []setup.Tree
	var disks map[string]string
	if from == nil {
		if disks, trees, err = b.newDisks(ctx, spec); err != nil {
			return err
		}
		b.rec.Machine = description{
			MemoryBytes: spec.Limits.MemoryBytes / mebibyte * mebibyte, Processors: spec.Limits.Processors(), Image: spec.Image.OCI.Digest,
			RootDisk: filepath.Base(disks[machine.RootDisk]), Own: disks[machine.OwnDisk] != "", Network: spec.Egress.Connected(),
		}
	} else if disks, err = b.savedDisks(from); err != nil {
		return err
	}
	request := b.e.request(spec, trees)
	request.Disks = serials(disks)
	d := b.rec.Machine
	m := vmm.Machine{
		Name: Tag(b.e.dir) + "-" + b.rec.Name, Emulate: b.e.o.Emulate, Program: machine.Argument + " " + spec.Image.Guest,
		MemoryBytes: d.MemoryBytes, Processors: d.Processors,
	}
	if b.e.groups != nil {
		limits := spec.Limits
		limits.MemoryBytes += hostMemory
		// A crash before the next record leaves an empty group of this name, which Remove finds by
		// name.
		if b.rec.Group, err = b.e.groups.CreateFor(groupName(b.rec.Name), limits, hostTasks); err != nil {
			return err
		}
	}
	network, err := b.networkEnd(spec)
	if err != nil {
		return err
	}
	defer network.Close()
	s, err := b.start(keeper.Request{QEMU: b.e.qemu, Machine: m, Kernel: boot.Kernel, FirstRoot: boot.FirstRoot, Disks: request.Disks, Network: d.Network, Restored: from != nil}, disks, from, network)
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
	if from != nil {
		go func() { _, _ = io.Copy(s.input, spec.Boot.Stream()) }() // see below
		return b.awaitRestored(ctx, s.output)
	}
	return b.awaitGuest(ctx, s.output, func() error {
		request.Time = time.Now() // until now the machine has booted
		line, err := json.Marshal(request)
		if err != nil {
			return err
		}
		go func() {
			// An error means that the keeper has ended, which the code that waits for the guest
			// notices.
			_, _ = io.Copy(s.input, io.MultiReader(bytes.NewReader(append(line, '\n')), spec.Boot.Stream()))
		}()
		return nil
	})
}

// networkEnd returns a copy of the machine's end of its network. A machine that had a network when
// it was saved, and has none now, gets an end whose peer is closed.
func (b *instance) networkEnd(spec engine.Spec) (*os.File, error) {
	if !b.rec.Machine.Network {
		return nil, nil
	}
	if !spec.Egress.Connected() {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, os.NewSyscallError("socketpair", err)
		}
		return os.NewFile(uintptr(fds[0]), "network"), unix.Close(fds[1])
	}
	fd, err := unix.FcntlInt(spec.Egress.End.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(fd), "network"), nil
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
	r := machine.Request{Network: spec.Egress.Connected(), Tasks: spec.Limits.PIDs + guestTasks, Seed: make([]byte, seedBytes)}
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

// start starts the keeper, with the state to restore and the machine's end of its network, or nil.
func (b *instance) start(r keeper.Request, disks map[string]string, from *state, network *os.File) (_ *started, err error) {
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
	orders, err := sandboxdir.ListenControl(b.dir)
	if err != nil {
		return nil, err
	}
	childFiles = append(childFiles, orders)
	for _, serial := range r.Disks {
		f, err := os.Open(disks[serial])
		if err != nil {
			return nil, err
		}
		childFiles = append(childFiles, f)
	}
	// The caller closes the files of the state and the network's end. The slice is copied, because
	// childFiles are closed here.
	extraFiles := slices.Clone(childFiles)
	if from != nil {
		extraFiles = append(extraFiles, from.memory, from.device)
	}
	if network != nil {
		extraFiles = append(extraFiles, network)
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
