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
	"strconv"
	"strings"
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
	ControlFD  = 7 // a listening Unix socket: each connection brings an Order
	// firstDisk is followed by the other disks, the memory and the devices of a saved state if there
	// is one, and the network's end if there is one.
	firstDisk = 8
)

// Request describes the machine to start.
type Request struct {
	QEMU    vmm.QEMU
	Machine vmm.Machine // without its files
	// Kernel and FirstRoot are the paths of the files from which the machine boots.
	Kernel, FirstRoot string
	Disks             []string // serial numbers
	Network           bool
	// Restored is set if the machine continues from a saved state.
	Restored bool
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

	memory     *os.File
	memorySize int64
	state      savedState // is used once
	monitor    *net.UnixConn
	control    vmm.Controller
	streams    *relay.Channel
	started    chan struct{} // closed when the engine's input was forwarded
	answers    chan string   // the guest's answers to instructions
	marks      int           // sent through the channel
}

// savedState has the files of a state, or nil.
type savedState struct{ memory, device *os.File }

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
	consoleDone := make(chan struct{})
	go func() {
		_, _ = io.Copy(&k.printed, k.console) // it ends with the machine
		close(consoleDone)
	}()
	k.status, k.answers, k.started = make(chan int, 1), make(chan string, 1), make(chan struct{})
	bootDone := make(chan struct{})
	go func() {
		k.readBoot()
		close(bootDone)
	}()
	if err := k.begin(r, stdin); err != nil {
		_ = cmd.Process.Kill() // it may have ended
		k.printed.add(err.Error())
	}
	err = cmd.Wait()
	<-consoleDone
	<-bootDone
	return k.exit(err)
}

// begin makes the machine continue if it is restored, and then serves it.
func (k *keeper) begin(r Request, stdin io.Reader) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	if k.control, err = r.QEMU.Control(ctx, k.monitor); err != nil {
		return err
	}
	if r.Restored {
		if err := k.restore(ctx); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	go func() {
		_, _ = io.Copy(k.boot, stdin) // the engine notices if the machine does not answer
		close(k.started)
	}()
	return k.serve()
}

// start starts QEMU.
func (k *keeper) start(r Request) (_ *exec.Cmd, err error) {
	for fd := ListenerFD; fd < firstDisk+len(r.Disks); fd++ {
		unix.CloseOnExec(fd)
	}
	m := r.Machine
	m.Restored = r.Restored
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
	if r.Restored {
		k.state = savedState{os.NewFile(uintptr(fd), "memory"), os.NewFile(uintptr(fd+1), "device")}
		unix.CloseOnExec(fd)
		unix.CloseOnExec(fd + 1)
		fd += 2
	}
	if r.Network {
		unix.CloseOnExec(fd)
		m.Network = os.NewFile(uintptr(fd), "network")
		childFiles = append(childFiles, m.Network)
	}
	for path, file := range map[string]**os.File{r.Kernel: &m.Kernel, r.FirstRoot: &m.FirstRoot} {
		if *file, err = os.Open(path); err != nil {
			return nil, err
		}
		childFiles = append(childFiles, *file)
	}
	if err := k.makeMemory(m.MemoryBytes); err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	var monitorEnd *os.File
	if k.monitor, monitorEnd, err = connPair(); err != nil {
		return nil, err
	}
	childFiles = append(childFiles, monitorEnd)
	m.Memory, m.Control = k.memory, monitorEnd
	cmd, err := r.QEMU.Command(m)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = &k.printed, &k.printed
	if err := startOnThread(cmd, m.Emulate, m.Kernel, m.FirstRoot); err != nil {
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

// readBoot forwards the machine's output at its boot port to the engine, and reads the guest's exit
// status from it.
func (k *keeper) readBoot() {
	output := os.NewFile(OutputFD, "output")
	defer output.Close()
	for lines := bufio.NewScanner(k.boot); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), machine.ExitPrefix); ok {
			if status, err := strconv.Atoi(text); err == nil {
				k.status <- status
				break
			}
		}
		select {
		case <-k.started:
			// The engine listens only until the guest is ready.
			select {
			case k.answers <- lines.Text():
			default: // no instruction waits for it
			}
		default:
		}
		_, _ = fmt.Fprintln(output, lines.Text())
	}
	close(k.answers)
}

// serve forwards streams between the engine's socket and the guest's channel.
func (k *keeper) serve() error {
	listener, err := listenerOf(ListenerFD)
	if err != nil {
		return err
	}
	// A channel needs separate files for reading and writing.
	fd, err := unix.FcntlInt(k.channel.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	k.streams, err = relay.NewSocketChannel(os.NewFile(uintptr(fd), "channel"), k.channel)
	if err != nil {
		return err
	}
	orders, err := listenerOf(ControlFD)
	if err != nil {
		return err
	}
	go func() { _ = relay.ServeDirect(listener, channelStreams{k.streams}) }() // it ends with this process
	go k.takeOrders(orders)
	return nil
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
