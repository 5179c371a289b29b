// Package keeper owns the process of the host that a virtual machine belongs to. It starts the
// machine, carries streams into it, writes down how it ended, and ends with it. A server that is
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

// Arg0 is the name under which the engine starts its own program as a keeper. Its argument names the
// sandbox, for those who list processes.
const Arg0 = "crannog-microvm"

// Descriptors that the engine hands over, besides standard input, at which the keeper reads a Request
// as one line, and then what the machine's first process and the guest read.
const (
	ListenerFD = 3 // a listening Unix socket: each connection is a stream into the machine
	OutputFD   = 4 // what the machine's first process and the guest print until the guest is ready
	ExitFD     = 5 // a file that takes an Exit
	ProcessFD  = 6 // a file that takes the process.Process of the machine
	firstDisk  = 7 // the disks, and after them the network's end if there is one
)

// Request is the machine to start.
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
	// Text is the end of what the kernel and the program that ran the machine printed.
	Text string
}

// Role is the role that the engine's own program must play.
func Role() reexec.Role { return reexec.Role{Match: reexec.Arg0(Arg0), Run: Main} }

// Main runs a machine until it ends. It does not return.
func Main() {
	// The machine ends with the thread that started it.
	runtime.LockOSThread()
	k := &keeper{}
	exit := k.run()
	exit.At = time.Now()
	if data, err := json.Marshal(exit); err == nil {
		_, _ = unix.Pwrite(ExitFD, data, 0) // the file may be gone with its sandbox
	}
	os.Exit(0)
}

// keeper holds the host's ends of a machine's streams.
type keeper struct {
	console, boot, channel *os.File
	words                  tail
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
		_, _ = io.Copy(k.boot, stdin) // the engine sees what the machine does not answer
	}()
	printed := make(chan struct{})
	go func() {
		_, _ = io.Copy(&k.words, k.console) // it ends with the machine
		close(printed)
	}()
	k.status = make(chan int, 1)
	heard := make(chan struct{})
	go func() {
		k.hear()
		close(heard)
	}()
	if err := k.serve(); err != nil {
		_ = cmd.Process.Kill() // it may have ended
		k.words.add(err.Error())
	}
	err = cmd.Wait()
	<-printed
	<-heard
	return k.exit(err)
}

// start starts the program that is the machine.
func (k *keeper) start(r Request) (*exec.Cmd, error) {
	for fd := ListenerFD; fd <= firstDisk+len(r.Disks); fd++ {
		unix.CloseOnExec(fd)
	}
	m := r.Machine
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	for _, end := range []**os.File{&k.console, &k.boot, &k.channel} {
		ours, other, err := pair()
		if err != nil {
			return nil, err
		}
		*end = ours
		theirs = append(theirs, other)
	}
	m.Console = theirs[0]
	m.Ports = []vmm.Port{{Name: machine.BootPort, End: theirs[1]}, {Name: machine.ChannelPort, End: theirs[2]}}
	fd := firstDisk
	for _, serial := range r.Disks {
		f := os.NewFile(uintptr(fd), serial)
		theirs = append(theirs, f)
		m.Disks = append(m.Disks, vmm.Disk{Serial: serial, File: f})
		fd++
	}
	if r.Network {
		m.Network = os.NewFile(uintptr(fd), "network")
		theirs = append(theirs, m.Network)
	}
	cmd, err := r.QEMU.Command(m)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = &k.words, &k.words
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

// pair makes two connected sockets. Ours can be waited for.
func pair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "machine"), os.NewFile(uintptr(fds[1]), "machine"), nil
}

// hear hands on what the machine prints at its boot port, and takes the guest's exit status from it.
func (k *keeper) hear() {
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

// serve carries streams between the engine's socket and the guest's channel.
func (k *keeper) serve() error {
	file := os.NewFile(ListenerFD, "listener")
	defer file.Close() // FileListener has its own copy
	listener, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("listener: %w", err)
	}
	// A channel reads from one file and writes to another.
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
	go func() { _ = relay.ServeDirect(listener, through{channel}) }() // it ends with this process
	return nil
}

// through opens streams by the channel. It implements relay.Inside.
type through struct{ channel *relay.Channel }

// Serves implements relay.Inside.
func (through) Serves(int) bool { return false }

// Take implements relay.Inside.
func (through) Take(int, net.Conn) bool { return false }

// Open implements relay.Inside.
func (t through) Open(port int) (net.Conn, error) { return t.channel.Dial(context.Background(), port) }

// exit returns how the machine ended.
func (k *keeper) exit(err error) Exit {
	text := k.words.String()
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
