// Package vmm owns the programs that run virtual machines: what a machine consists of, and how a
// program is started that is this machine. Nothing else knows which program it is.
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
	// Kernel and FirstRoot are files of the host: the kernel, and the archive that it unpacks as its
	// first root. Program are the
	// arguments of the first process.
	Kernel, FirstRoot, Program string
	MemoryBytes                int64
	Processors                 int
	// Disks are read-only. The machine finds each one by its serial number.
	Disks []Disk
	// Console is where the kernel prints. Ports are the other ends of the streams that the machine
	// finds by their names. All of them are connected stream sockets.
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
// Cloud Hypervisor fit as well.
type VMM interface {
	// Version returns the name and the version of the program.
	Version(ctx context.Context) (string, error)
	// Command returns a command that runs the machine, and ends when the machine does. The command
	// has the machine's files.
	Command(m Machine) (*exec.Cmd, error)
}
