// Package vmm owns the programs that run virtual machines: the description of a machine, the command
// that runs it, and its control while it runs. Other packages do not depend on a particular program.
package vmm

import (
	"context"
	"net"
	"os"
	"os/exec"
)

// Machine is a virtual machine with one sandbox.
type Machine struct {
	// Name is shown in the list of processes.
	Name string
	// Emulate runs the machine without the processor's virtualization, so that it is no boundary.
	Emulate bool
	// Kernel is the kernel, and FirstRoot the archive that it unpacks as its first root. Program
	// holds the arguments of the first process.
	Kernel, FirstRoot *os.File
	Program           string
	MemoryBytes       int64
	Processors        int
	// Memory is a file of MemoryBytes, which is the machine's memory. No other machine uses it.
	Memory *os.File
	// Control is the end of a stream socket at which the program takes orders; see VMM.Control.
	Control *os.File
	// Restored is set if the machine does not boot but waits for Controller.Load.
	Restored bool
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
	// Control returns the control of a machine, at the other end of Machine.Control.
	Control(ctx context.Context, end *net.UnixConn) (Controller, error)
}

// Controller controls a running machine. What the machine's program answers may be hostile.
type Controller interface {
	// Stop stops the processors and devices of the machine. Continue lets them continue.
	Stop(ctx context.Context) error
	Continue(ctx context.Context) error
	// Save writes the state of processors and devices of a stopped machine to a pipe. The state of
	// the memory is that of Machine.Memory. The machine stays stopped.
	Save(ctx context.Context, to *os.File) error
	// Load reads such a state from a pipe into a machine with the same description, whose memory
	// file has the content of that time. The machine stays stopped.
	Load(ctx context.Context, from *os.File) error
}
