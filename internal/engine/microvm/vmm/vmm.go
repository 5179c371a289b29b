// Package vmm owns the programs that run virtual machines: the description of a machine, and the
// command that runs it. Other packages do not depend on a particular program.
package vmm

import (
	"context"
	"os"
	"os/exec"
)

// Machine is a virtual machine with one sandbox.
type Machine struct {
	// Name is shown in the list of processes.
	Name string
	// Emulate runs the machine without the processor's virtualization, so that it is no boundary.
	Emulate bool
	// Kernel and FirstRoot are files of the host: the kernel, and the archive that it unpacks as
	// its first root. Program holds the arguments of the first process.
	Kernel, FirstRoot, Program string
	MemoryBytes                int64
	Processors                 int
	// Disks are read-only. The machine finds each one by its serial number.
	Disks []Disk
	// Console receives the kernel's output. Ports are the host's ends of streams, which the machine
	// finds by their names. All are connected stream sockets.
	Console *os.File
	Ports   []Port
	// Network, if not nil, is the machine's end of an attachment of the kind Ethernet: a stream
	// socket.
	Network *os.File
}

// Disk is a file of the host that is a block device of the machine.
type Disk struct {
	Serial string // at most 20 characters
	File   *os.File
}

// Port is a stream between the host and a program in the machine.
type Port struct {
	Name string
	End  *os.File
}

// VMM is a program that runs virtual machines. QEMU is the only implementation; Firecracker and
// Cloud Hypervisor could be others.
type VMM interface {
	// Version returns the name and the version of the program.
	Version(ctx context.Context) (string, error)
	// Command returns a command that runs the machine and ends with it. The command passes on the
	// machine's files.
	Command(m Machine) (*exec.Cmd, error)
}
