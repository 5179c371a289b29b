// Package setup owns the work of a jail's first process before it becomes the guest: it builds
// the root, creates the network interface, and drops its rights. It runs in the guest's own
// program, so that a jail starts only one program.
package setup

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress/tun"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/host/reexec"
)

// Arg0 is the argv[0] with which the engine starts the guest's program as a jail's first process.
// Its argument names the sandbox in process lists.
const Arg0 = "crannog-jail"

// Descriptors that the engine passes to the process. Those of the guest follow the conventions of
// package guestboot.
const (
	// ControlFD is a SOCK_SEQPACKET socket. It receives the request and its trees, and sends the
	// answer.
	ControlFD = guestboot.ChannelFD + 1
	// ExitFD is a file for the exit status, because a server that did not start the process cannot
	// wait for it.
	ExitFD = ControlFD + 1
	// ServiceFD is the guest's end of a socket to the engine, if the engine serves requests of the
	// guest.
	ServiceFD = guestboot.ServiceFD
	// GatewayFD refers to the socket of the egress gateway, if the sandbox has a network without an
	// interface.
	GatewayFD = guestboot.GatewayFD
)

// Interface is the name of a sandbox's network interface.
const Interface = "eth0"

// Request describes the jail to create. It arrives as one message, followed by one message with a
// descriptor for each tree that needs one.
type Request struct {
	Hostname string
	Trees    []Tree
	Links    []engine.Link
	// Hide, Absent and ReadOnly are those of engine.Spec.
	Hide, Absent, ReadOnly []string
	// Limits has no zero field. DiskBytes is the size of the tmpfs that receives the sandbox's
	// writes.
	Limits engine.Limits
	// Users is set if the sandbox has several IDs. Otherwise everything in it has one user.
	Users bool
	// Tap requests a network interface, whose other end is returned. An engine that runs as root
	// creates the interface itself, because the sandbox's IDs may not open the host's device.
	Tap bool
	// Gateway is set if the guest connects programs to the gateway's socket.
	Gateway bool `json:",omitempty"`
	// Own is set in a virtual machine, whose kernel serves this sandbox alone: the kernel's sizes
	// are the sandbox's, and programs may make namespaces of their own.
	Own bool `json:",omitempty"`
	// CPUs is the number of processors that programs see.
	CPUs int
	// Arguments are additional arguments of the guest.
	Arguments []string `json:",omitempty"`
	// Groups are the sandbox's control groups, by their path below /sys/fs/cgroup in the sandbox.
	Groups map[string]string
}

// Tree is a file or a directory of the host that is shown in the sandbox.
type Tree struct {
	Target string
	// Source is its path, for a process that runs as the user and sees the host's files. If it is
	// empty, the engine sends a descriptor.
	Source string
	File   bool
	// Name is the file's name if the tree is the directory that contains the file. A mount of the
	// file itself would reveal its path on the host to programs in the sandbox.
	Name string
	// Copy is set for a file that the sandbox may change. It then has a copy that belongs to its
	// user.
	Copy bool
	// Place is set if the path may be missing in the tree above, and is created.
	Place bool
	// Volume is set for a directory that is shown itself instead of copy-on-write, and ReadOnly if
	// programs cannot change its files.
	Volume, ReadOnly bool `json:",omitempty"`
}

// Answer is the reply, sent with the descriptor of the network's other end if there is one.
type Answer struct {
	Error string `json:",omitempty"`
	// Refused is set if the request itself is invalid.
	Refused bool `json:",omitempty"`
	Tap     bool `json:",omitempty"`
}

// Role is the role of the first process. Each program that can be a guest must register it.
func Role() reexec.Role {
	return reexec.Role{Match: reexec.Arg0(Arg0), Run: Main}
}

// Main prepares the jail and becomes the guest. It does not return.
func Main() {
	runtime.LockOSThread()
	for _, fd := range []int{guestboot.ChannelFD, ControlFD, ExitFD, ServiceFD, GatewayFD} {
		unix.CloseOnExec(fd)
	}
	answer, device, arguments := prepare()
	if err := reply(answer, device); err != nil || answer.Error != "" {
		os.Exit(1)
	}
	unix.Close(ControlFD)
	runtime.UnlockOSThread()
	status := guestmain.Run(append(arguments, guestboot.ListenerFlag)...)
	// The file may have been removed with its sandbox.
	_, _ = unix.Pwrite(ExitFD, fmt.Appendln(nil, status), 0)
	os.Exit(status)
}

// prepare creates the jail and returns the other end of its network and the guest's arguments.
func prepare() (answer Answer, device *os.File, arguments []string) {
	r, trees, err := receive()
	if err == nil {
		arguments = r.Arguments
		if r.Gateway {
			arguments = append(arguments, guestboot.GatewayFlag)
		}
		device, answer.Refused, err = r.make(trees)
	}
	if err != nil {
		answer.Error = err.Error()
	}
	answer.Tap = device != nil
	return answer, device, arguments
}

// make does everything that needs rights, and then drops them.
func (r *Request) make(trees []int) (device *os.File, refused bool, err error) {
	// A TUN device belongs to the network namespace in which its file is opened, and the path of
	// the file is in the host's root.
	if r.Tap {
		if device, err = tun.New(Interface, 0); err != nil {
			return nil, false, fmt.Errorf("network interface: %w", err)
		}
	}
	if err := loopbackUp(); err != nil {
		return device, false, fmt.Errorf("loopback: %w", err)
	}
	if err := unix.Sethostname([]byte(r.Hostname)); err != nil {
		return device, false, fmt.Errorf("host name: %w", err)
	}
	if refused, err = r.build(trees); err != nil {
		return device, refused, err
	}
	os.Clearenv()
	for _, v := range [][2]string{{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, {"HOME", "/root"}} {
		if err := os.Setenv(v[0], v[1]); err != nil {
			return device, false, err
		}
	}
	if err := r.confine(); err != nil {
		return device, false, fmt.Errorf("confine: %w", err)
	}
	return device, false, nil
}

// MakeOwn prepares the sandbox in a virtual machine of its own: it builds the root from trees that
// have a Source, and drops all rights that the guest does not need. refused is set if the request
// itself is invalid.
func (r *Request) MakeOwn() (refused bool, err error) {
	r.Own, r.Users, r.Tap = true, true, false
	trees := make([]int, len(r.Trees))
	for i := range trees {
		trees[i] = -1
	}
	_, refused, err = r.make(trees)
	return refused, err
}

// maxRequestSize bounds the size of a request.
const maxRequestSize = 1 << 20

// receive reads the request and the descriptors of its trees, in order.
func receive() (*Request, []int, error) {
	data, _, err := readMessage()
	if err != nil {
		return nil, nil, err
	}
	var r Request
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, nil, fmt.Errorf("request: %w", err)
	}
	trees := make([]int, len(r.Trees))
	for i := range trees {
		trees[i] = -1
		if r.Trees[i].Source != "" {
			continue
		}
		_, fds, err := readMessage()
		if err != nil {
			return nil, nil, err
		}
		if len(fds) != 1 {
			return nil, nil, fmt.Errorf("got %d descriptors for tree %d", len(fds), i)
		}
		trees[i] = fds[0]
	}
	return &r, trees, nil
}

// readMessage reads one message. If the engine dies, its end of the socket closes, and an
// incomplete jail ends.
func readMessage() (data []byte, fds []int, err error) {
	data, control := make([]byte, maxRequestSize), make([]byte, unix.CmsgSpace(4))
	for {
		n, controls, _, _, err := unix.Recvmsg(ControlFD, data, control, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read from the engine: %w", err)
		}
		if n == 0 {
			return nil, nil, fmt.Errorf("the engine has ended")
		}
		messages, err := unix.ParseSocketControlMessage(control[:controls])
		if err != nil {
			return nil, nil, fmt.Errorf("read from the engine: %w", err)
		}
		for _, m := range messages {
			got, err := unix.ParseUnixRights(&m)
			if err != nil {
				return nil, nil, fmt.Errorf("read from the engine: %w", err)
			}
			fds = append(fds, got...)
		}
		return data[:n], fds, nil
	}
}

// reply sends the answer. It closes the device, because the device and its network namespace must
// not outlive the gateway's descriptor.
func reply(answer Answer, device *os.File) error {
	data, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	var rights []byte
	if device != nil {
		defer device.Close()
		rights = unix.UnixRights(int(device.Fd()))
	}
	return unix.Sendmsg(ControlFD, data, rights, nil, 0)
}

// loopbackUp brings up the loopback interface of the sandbox's network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
