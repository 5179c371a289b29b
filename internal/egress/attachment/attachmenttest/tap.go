package attachmenttest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

const (
	tapArg0 = "test-tap-box"
	self    = "/proc/self/exe"
)

// TapRole is the role that a test binary must support if it calls StartTap.
var TapRole = reexec.Role{Match: reexec.Arg0(tapArg0), Run: runTapPeer}

// Form is how a Kernel's traffic reaches the gateway.
type Form string

// Forms of traffic. All except TUN use a TAP device: the form TAP is the device's own descriptor,
// and the others are sockets to which a relay connects the device.
const (
	TUN       Form = "tun"
	TAP       Form = "tap"
	Datagrams Form = "datagrams"
	Messages  Form = "messages" // SOCK_SEQPACKET
	Stream    Form = "stream"
)

// Kind returns the kind of attachment of a form.
func (f Form) Kind() attachment.Kind {
	if f == TUN {
		return attachment.Tap
	}
	return attachment.Ethernet
}

// Kernel is a process in its own network namespace, whose only connection is a TUN or TAP device: a
// sandbox's network on the host's own kernel.
type Kernel struct {
	cmd    *exec.Cmd
	start  *net.UnixConn
	output bytes.Buffer
}

// StartTap is StartKernel with a TUN device.
func StartTap(t testing.TB, rootless bool, mtu int, program ...string) (link *os.File, k *Kernel) {
	t.Helper()
	return StartKernel(t, TUN, rootless, mtu, program...)
}

// StartKernel creates a Kernel, with rootless also in its own user namespace, and returns the
// gateway's end of its network. The program starts when Go is called. If the program is
// /proc/self/exe, the arguments of a role follow.
func StartKernel(t testing.TB, form Form, rootless bool, mtu int, program ...string) (link *os.File, k *Kernel) {
	t.Helper()
	device, k := startDevice(t, form, rootless, mtu, program...)
	if form == TUN || form == TAP {
		return device, k
	}
	return Relay(t, form, device), k
}

func startDevice(t testing.TB, form Form, rootless bool, mtu int, program ...string) (link *os.File, k *Kernel) {
	t.Helper()
	hosttest.Need(t, hosttest.TUN)
	if !rootless {
		// Only root can create a network namespace without a user namespace.
		hosttest.Need(t, hosttest.Root)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	childEnd, parentEnd := os.NewFile(uintptr(fds[0]), "child-end"), os.NewFile(uintptr(fds[1]), "parent-end")
	defer childEnd.Close()
	defer parentEnd.Close()
	conn, err := net.FileConn(parentEnd)
	if err != nil {
		t.Fatal(err)
	}
	k = &Kernel{start: conn.(*net.UnixConn)}
	k.cmd = exec.CommandContext(t.Context(), self)
	k.cmd.Args = append([]string{tapArg0, string(form), strconv.Itoa(mtu)}, program...)
	k.cmd.Env, k.cmd.ExtraFiles = []string{"PATH=" + os.Getenv("PATH")}, []*os.File{childEnd}
	k.cmd.Stdout, k.cmd.Stderr = &k.output, &k.output
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if rootless {
		k.cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		k.cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		k.cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	childEnd.Close()
	t.Cleanup(k.Kill)
	control := make([]byte, unix.CmsgSpace(4))
	_ = k.start.SetReadDeadline(hosttest.Deadline())
	_, n, _, _, err := k.start.ReadMsgUnix(make([]byte, 1), control)
	if err != nil || n == 0 {
		_ = k.cmd.Wait()
		t.Fatalf("the child sent no device: %v\n%s", err, k.output.String())
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		t.Fatalf("the child sent %d control messages, want 1: %v", len(messages), err)
	}
	got, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(got) != 1 {
		t.Fatalf("the child sent the descriptors %v, want 1: %v", got, err)
	}
	link = os.NewFile(uintptr(got[0]), "tap")
	t.Cleanup(func() { link.Close() })
	return link, k
}

// Go starts the program.
func (k *Kernel) Go() { k.start.Close() }

// PID returns the ID of the process that becomes the program.
func (k *Kernel) PID() int { return k.cmd.Process.Pid }

// Kill ends the program as kill -9 does.
func (k *Kernel) Kill() {
	k.start.Close()
	_ = k.cmd.Process.Kill()
	_ = k.cmd.Wait()
}

// Wait waits for the program's end and returns its output.
func (k *Kernel) Wait() (string, error) {
	err := k.cmd.Wait()
	return k.output.String(), err
}

// runTapPeer creates the device, passes it to the parent, waits for Go and executes the program.
func runTapPeer() {
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
	mtu, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fail(err)
	}
	open := attachment.NewEthernetTap
	if Form(os.Args[1]) == TUN {
		open = attachment.NewTap
	}
	link, err := open("eth0", mtu)
	if err != nil {
		fail(err)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(link.Fd())), nil, 0); err != nil {
		fail(err)
	}
	link.Close()
	for {
		if _, err := unix.Read(3, make([]byte, 1)); err != unix.EINTR {
			break
		}
	}
	unix.CloseOnExec(3)
	path, err := exec.LookPath(os.Args[3])
	if err != nil {
		fail(err)
	}
	if path == self && len(os.Args) > 4 {
		fail(unix.Exec(path, os.Args[4:], os.Environ())) // a role of the test binary
	}
	fail(unix.Exec(path, os.Args[3:], os.Environ()))
}
