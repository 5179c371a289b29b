package vmm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Program is the name of QEMU's program.
const Program = "qemu-system-x86_64"

// QEMU runs machines of QEMU's type microvm, which has no PCI bus and only the firmware that
// starts a kernel.
type QEMU struct {
	// Path is the path of the program. If it is empty, Program is looked up in PATH.
	Path string
	// TSC is the frequency of the processor's time stamp counter in kHz. An emulated microvm has no
	// clock with which a kernel could measure it, and without the frequency the kernel hangs.
	TSC int
}

// path returns the program's name or path.
func (q QEMU) path() string {
	if q.Path == "" {
		return Program
	}
	return q.Path
}

// Version implements VMM.
func (q QEMU) Version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, q.path(), "--version").Output()
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(out), "\n")
	if fields := strings.Fields(line); len(fields) > 3 {
		return "QEMU " + fields[3], nil
	}
	return "", fmt.Errorf("%s printed %q as its version", q.path(), line)
}

// kernelArguments are the arguments of each kernel. With them, the machine ends instead of
// restarting, and the kernel skips self-tests, which would slow down each boot.
const kernelArguments = "console=ttyS0 quiet loglevel=1 reboot=t panic=-1 random.trust_cpu=on audit=0 cryptomgr.notests rcupdate.rcu_expedited=1 8250.nr_uarts=1 no_timer_check"

// emulatedArguments are additional arguments for an emulated processor. It needs no mitigations,
// because it does not have the defects of real processors.
const emulatedArguments = " mitigations=off nokaslr nopti tsc=reliable tsc_early_khz=%d lpj=%d"

const mebibyte = 1 << 20

// descriptors is the directory of QEMU's own open files, for options that take a path only.
const descriptors = "/proc/self/fd/"

// Command implements VMM.
func (q QEMU) Command(m Machine) (*exec.Cmd, error) {
	path, err := exec.LookPath(q.path())
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path) //nolint:noctx // the caller ends it
	// pass passes a file to the program and returns its descriptor there.
	pass := func(f *os.File) string {
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		return strconv.Itoa(2 + len(cmd.ExtraFiles))
	}
	kernel := kernelArguments
	accelerator, cpu := "kvm", "host"
	if m.Emulate {
		accelerator, cpu = "tcg,tb-size=128", "max"
		kernel += fmt.Sprintf(emulatedArguments, q.TSC, q.TSC*4)
	}
	size := strconv.FormatInt(m.MemoryBytes/mebibyte, 10) + "M"
	args := []string{
		"-name", m.Name, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-M", "microvm,acpi=on,rtc=on,pit=on,pic=on,memory-backend=ram", "-global", "virtio-mmio.force-legacy=false",
		"-accel", accelerator, "-cpu", cpu, "-m", size, "-smp", strconv.Itoa(m.Processors),
		"-object", "memory-backend-file,id=ram,size=" + size + ",share=on,mem-path=" + descriptors + pass(m.Memory),
		"-chardev", "socket,id=monitor,fd=" + pass(m.Control), "-mon", "chardev=monitor,mode=control",
		// A program that has taken over QEMU gains no rights, starts no program and raises no
		// limit.
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-kernel", descriptors + pass(m.Kernel), "-initrd", descriptors + pass(m.FirstRoot), "-append", kernel + " -- " + m.Program,
		"-chardev", "socket,id=console,fd=" + pass(m.Console), "-serial", "chardev:console",
		"-device", "virtio-serial-device,max_ports=" + strconv.Itoa(len(m.Ports)+1),
	}
	for i, p := range m.Ports {
		id := "port" + strconv.Itoa(i)
		args = append(args, "-chardev", "socket,id="+id+",fd="+pass(p.End), "-device", "virtserialport,chardev="+id+",name="+p.Name+",nr="+strconv.Itoa(i+1))
	}
	for i, d := range m.Disks {
		id := "disk" + strconv.Itoa(i)
		set := strconv.Itoa(i + 1)
		args = append(args, "-add-fd", "fd="+pass(d.File)+",set="+set,
			"-blockdev", "driver=raw,node-name="+id+",read-only=on,file.driver=file,file.filename=/dev/fdset/"+set+",file.locking=off",
			"-device", "virtio-blk-device,drive="+id+",serial="+d.Serial)
	}
	if m.Network != nil {
		// The packets are as large as the gateway accepts, because the cost per packet does not
		// depend on its size.
		args = append(args, "-netdev", "stream,id=net,addr.type=fd,addr.str="+pass(m.Network), "-device", "virtio-net-device,netdev=net,host_mtu=65000")
	}
	if m.Restored {
		args = append(args, "-incoming", "defer")
	}
	cmd.Args = append(cmd.Args, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C"}
	return cmd, nil
}

// HostTSC returns the frequency of this host's time stamp counter, in kHz, or 0 if the kernel does
// not report it.
func HostTSC() int {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "cpu MHz" {
			mhz, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err == nil {
				return int(mhz * 1000)
			}
		}
	}
	return 0
}
