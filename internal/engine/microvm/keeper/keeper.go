// Package keeper owns the host process to which a virtual machine belongs. It starts the machine,
// forwards streams into it, records how it ended, and ends with it. A server that is
// restarted finds its machines by their keepers.
package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/microvm/machine"
	"github.com/crannog/crannog/internal/engine/microvm/vmm"
	"github.com/crannog/crannog/internal/guest/relay"
	"github.com/crannog/crannog/internal/host/reexec"
)

// Arg0 is the argv[0] with which the engine starts its own program as a keeper. Its argument names
// the sandbox in process lists.
const Arg0 = "crannog-microvm"

// Descriptors that the engine passes to the keeper. From standard input, the keeper reads a Request
// as one line, followed by the input of the machine's first process and the guest.
const (
	ListenerFD = 3 // a listening Unix socket: each connection is a stream into the machine
	OutputFD   = 4 // the output of the machine's first process and the guest until the guest is ready
	ExitFD     = 5 // a file for an Exit
	ProcessFD  = 6 // a file for the process.Process of the machine
	firstDisk  = 7 // the disks, and after them the network's end if there is one
)

// Request describes the machine to start.
type Request struct {
	QEMU    vmm.QEMU
	Machine vmm.Machine // without its files
	Disks   []string    // serial numbers
	Network bool
}

// Exit is how a machine ended, in JSON.
type Exit struct {
	Reason engine.Reason
	Code   int
	At     time.Time
	// Text is the last output of the kernel and of QEMU.
	Text string
}

// Role is the role of the keeper. Each program that opens the engine must register it.
func Role() reexec.Role { return reexec.Role{Match: reexec.Arg0(Arg0), Run: Main} }

// Main runs a machine until it ends. It does not return.
func Main() {
	// The machine ends with the thread that started it.
	runtime.LockOSThread()
	k := &keeper{}
	exit := k.run()
	exit.At = time.Now()
	if data, err := json.Marshal(exit); err == nil {
		_, _ = unix.Pwrite(ExitFD, data, 0) // the file may have been removed with its sandbox
	}
	os.Exit(0)
}

// keeper holds the host's ends of a machine's streams.
type keeper struct {
	console, boot, channel *os.File
	printed                tail
	status                 chan int // the guest's exit status
}

// run runs the machine and returns how it ended.
func (k *keeper) run() Exit {
	stdin := bufio.NewReader(os.Stdin)
	line, err := stdin.ReadBytes('\n')
	var r Request
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	var cmd *exec.Cmd
	if err == nil {
		cmd, err = k.start(r)
	}
	if err != nil {
		return Exit{Reason: engine.ReasonCrashed, Text: err.Error()}
	}
	go func() {
		_, _ = io.Copy(k.boot, stdin) // the engine notices if the machine does not answer
	}()
	consoleDone := make(chan struct{})
	go func() {
		_, _ = io.Copy(&k.printed, k.console) // it ends with the machine
		close(consoleDone)
	}()
	k.status = make(chan int, 1)
	bootDone := make(chan struct{})
	go func() {
		k.readBoot()
		close(bootDone)
	}()
	if err := k.serve(); err != nil {
		_ = cmd.Process.Kill() // it may have ended
		k.printed.add(err.Error())
	}
	err = cmd.Wait()
	<-consoleDone
	<-bootDone
	return k.exit(err)
}

// start starts QEMU.
func (k *keeper) start(r Request) (*exec.Cmd, error) {
	for fd := ListenerFD; fd <= firstDisk+len(r.Disks); fd++ {
		unix.CloseOnExec(fd)
	}
	m := r.Machine
	var childFiles []*os.File
	defer func() {
		for _, f := range childFiles {
			f.Close()
		}
	}()
	for _, end := range []**os.File{&k.console, &k.boot, &k.channel} {
		ourEnd, childEnd, err := pair()
		if err != nil {
			return nil, err
		}
		*end = ourEnd
		childFiles = append(childFiles, childEnd)
	}
	m.Console = childFiles[0]
	m.Ports = []vmm.Port{{Name: machine.BootPort, End: childFiles[1]}, {Name: machine.ChannelPort, End: childFiles[2]}}
	fd := firstDisk
	for _, serial := range r.Disks {
		f := os.NewFile(uintptr(fd), serial)
		childFiles = append(childFiles, f)
		m.Disks = append(m.Disks, vmm.Disk{Serial: serial, File: f})
		fd++
	}
	if r.Network {
		m.Network = os.NewFile(uintptr(fd), "network")
		childFiles = append(childFiles, m.Network)
	}
	cmd, err := r.QEMU.Command(m)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = &k.printed, &k.printed
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p, err := process.Identify(cmd.Process.Pid)
	if err == nil {
		var data []byte
		if data, err = json.Marshal(p); err == nil {
			_, err = unix.Pwrite(ProcessFD, data, 0)
		}
	}
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return cmd, nil
}

// pair returns two connected sockets. ourEnd is non-blocking.
func pair() (ourEnd, childEnd *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "machine"), os.NewFile(uintptr(fds[1]), "machine"), nil
}

// readBoot forwards the machine's output at its boot port to the engine, and reads the guest's exit
// status from it.
func (k *keeper) readBoot() {
	output := os.NewFile(OutputFD, "output")
	defer output.Close()
	for lines := bufio.NewScanner(k.boot); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), machine.ExitPrefix); ok {
			if status, err := strconv.Atoi(text); err == nil {
				k.status <- status
				return
			}
		}
		_, _ = fmt.Fprintln(output, lines.Text()) // the engine listens only until the guest is ready
	}
}

// serve forwards streams between the engine's socket and the guest's channel.
func (k *keeper) serve() error {
	file := os.NewFile(ListenerFD, "listener")
	defer file.Close() // FileListener has its own copy
	listener, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("listener: %w", err)
	}
	// A channel needs separate files for reading and writing.
	fd, err := unix.FcntlInt(k.channel.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	channel, err := relay.NewChannel(os.NewFile(uintptr(fd), "channel"), k.channel)
	if err != nil {
		return err
	}
	go func() { _ = relay.ServeDirect(listener, channelStreams{channel}) }() // it ends with this process
	return nil
}

// channelStreams opens streams through the channel. It implements relay.Inside.
type channelStreams struct{ channel *relay.Channel }

// Serves implements relay.Inside.
func (channelStreams) Serves(int) bool { return false }

// Take implements relay.Inside.
func (channelStreams) Take(int, net.Conn) bool { return false }

// Open implements relay.Inside.
func (c channelStreams) Open(port int) (net.Conn, error) {
	return c.channel.Dial(context.Background(), port)
}

// exit returns how the machine ended.
func (k *keeper) exit(err error) Exit {
	text := k.printed.String()
	select {
	case status := <-k.status:
		return Exit{Reason: engine.ReasonExited, Code: status}
	default:
	}
	if strings.Contains(text, "Out of memory") {
		return Exit{Reason: engine.ReasonOOM, Text: text}
	}
	if err != nil {
		text = strings.TrimSpace(text + "\n" + err.Error())
	}
	return Exit{Reason: engine.ReasonCrashed, Text: text}
}
