package microvm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/lifetime"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/microvm/bootfiles"
	"github.com/crannog/crannog/internal/engine/microvm/keeper"
	"github.com/crannog/crannog/internal/engine/microvm/machine"
	"github.com/crannog/crannog/internal/engine/microvm/vmm"
	"github.com/crannog/crannog/internal/fault"
)

// Codes of the faults of a host that cannot run machines.
const (
	codeKVM    = "kvm_unusable"
	codeKernel = "kernel_missing"
	codeQEMU   = "qemu_missing"
)

// kvmHint is the hint for hosts where the processor's virtualization cannot be used.
const kvmHint = "use a host with KVM: bare metal, or a virtual machine with nested virtualization enabled; other engines do not need it"

// kernelHint is the hint for hosts without a kernel to boot.
const kernelHint = "apt-get install linux-image-cloud-amd64, or download and unpack that package and name its directory in the setting microvm_kernel"

// noKernel returns the fault for a host without a kernel to boot.
func noKernel(err error) error {
	return fault.Wrap(err, fault.Unsupported, codeKernel, fmt.Sprintf("no kernel for virtual machines: %v", err)).WithHint(kernelHint)
}

// Probe implements engine.Engine. Whether KVM works is known only once a kernel has booted on it.
func (e *Engine) Probe(ctx context.Context) []engine.Finding {
	list := []engine.Finding{e.checkQEMU(ctx), e.checkKernel(), e.checkGroups()}
	if e.o.Emulate {
		return append(list, engine.Warn("microVM boundary", "machines are emulated, which is no boundary", "remove the setting microvm_emulation"))
	}
	return append(list, e.checkKVM(ctx, engine.Refusal(list) == nil))
}

// failed returns a finding of a failed check with a code.
func failed(check, code, detail, fix string) engine.Finding {
	f := engine.Fail(check, detail, fix)
	f.Code = code
	return f
}

func (e *Engine) checkQEMU(ctx context.Context) engine.Finding {
	const name = "microVM program"
	version, err := e.qemu.Version(ctx)
	if errors.Is(err, exec.ErrNotFound) {
		return failed(name, codeQEMU, vmm.Program+" is not installed", "apt-get install qemu-system-x86")
	}
	if err != nil {
		return failed(name, codeQEMU, err.Error(), "reinstall qemu-system-x86")
	}
	return engine.OK(name, version)
}

func (e *Engine) checkKernel() engine.Finding {
	const name = "microVM kernel"
	files, err := bootfiles.Make(e.bootDir(), e.o.Kernel, e.o.Guest)
	if err != nil {
		return failed(name, codeKernel, err.Error(), kernelHint)
	}
	return engine.OK(name, files.Kernel)
}

func (e *Engine) checkGroups() engine.Finding {
	const name = "microVM cgroups"
	if e.groups == nil {
		return engine.Warn(name, fmt.Sprintf("%v: processor time is not limited, and a sandbox cannot be paused in memory", e.noGroups),
			"run as root, or in a control group that is delegated to this user")
	}
	return engine.OK(name, e.groups.String())
}

// checkKVM boots a kernel if the other checks passed, and ends it once its first process runs.
func (e *Engine) checkKVM(ctx context.Context, others bool) engine.Finding {
	const name, device = "KVM", "/dev/kvm"
	if err := unix.Access(device, unix.R_OK|unix.W_OK); err != nil {
		hint := kvmHint
		if errors.Is(err, unix.EACCES) {
			hint = "add this user to the group kvm"
		}
		return failed(name, codeKVM, fmt.Sprintf("%s cannot be opened: %v", device, err), hint)
	}
	if !others {
		return engine.Warn(name, device+" can be opened; it was not tested, because QEMU or a kernel is missing", "fix the other findings first")
	}
	began := time.Now()
	if err := e.tryBoot(ctx); err != nil {
		return failed(name, codeKVM, device+" can be opened but does not work: "+err.Error(), kvmHint)
	}
	return engine.OK(name, fmt.Sprintf("a kernel boots in %s", time.Since(began).Round(time.Millisecond)))
}

// tryBoot boots a kernel in a machine without disks and ends it.
func (e *Engine) tryBoot(ctx context.Context) (err error) {
	boot, err := bootfiles.Make(e.bootDir(), e.o.Kernel, e.o.Guest)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(e.dir, ".probe-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &instance{e: e, dir: dir, Life: lifetime.New(dir, process.Process{})}
	s, err := b.start(keeper.Request{QEMU: e.qemu, Kernel: boot.Kernel, FirstRoot: boot.FirstRoot, Machine: vmm.Machine{
		Name: Tag(e.dir) + "-probe", Emulate: e.o.Emulate, Program: machine.Argument, MemoryBytes: minMemory, Processors: 1,
	}}, nil, nil, nil)
	if err != nil {
		return err
	}
	defer s.close()
	if _, err := b.Start(s.cmd); err != nil {
		return err
	}
	err = awaitHello(ctx, s.output, bufio.NewReader(s.output), e.o.Emulate)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && fault.CodeOf(err) != codeKVM {
		if line, _, _ := strings.Cut(b.lastOutput(), "\n"); line != "" {
			err = errors.New(line)
		}
	}
	_ = s.cmd.Process.Kill() // it may have ended
	b.AwaitReaped()
	if m, known := b.machine(); known {
		err = errors.Join(err, m.Kill(lifetime.Patience))
	}
	return err
}

// MachineFile returns the file with the PID of a sandbox's machine, for tests that kill the
// machine.
func (e *Engine) MachineFile(id string) string {
	return filepath.Join(e.instanceDir(id), processName)
}
