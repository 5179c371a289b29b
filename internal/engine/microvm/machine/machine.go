// Package machine owns what the guest's program does as the first process of a virtual machine,
// before it becomes the guest: it loads the kernel's modules, reads what the sandbox is to be, mounts
// the disks and builds the root from them.
package machine

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/engine/microvm/bootfiles"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/host/reexec"
)

// Argument is the argument of the first process by which it has this role.
const Argument = "crannog-machine"

// Names of the ports: at BootPort the first process reads its request and the guest its
// configuration, and both print. ChannelPort carries the streams of the guest.
const (
	BootPort    = "boot"
	ChannelPort = "channel"
)

// Serial numbers of the disks. RootDisk has the image, and OwnDisk what only this sandbox has of the
// host: its workspace and its mounts.
const (
	RootDisk = "root"
	OwnDisk  = "own"
)

// Places of the disks while the root is built.
const (
	RootPlace = "/disks/root"
	OwnPlace  = "/disks/own"
)

// Lines that the first process prints at the boot port. Hello shows that the kernel runs. An Answer in
// JSON follows it, and then what the guest prints. ExitPrefix begins the line with the guest's exit
// status, which is the last one.
const (
	Hello      = "hello"
	ExitPrefix = "exit "
)

// Request is what the machine is to be, as one line of JSON.
type Request struct {
	// Root is how the root is built. The sources of its trees are at the places of the disks.
	Root setup.Request
	// Tasks bounds the processes of the whole machine.
	Tasks int64
	// Disks are the serial numbers of the disks that are mounted.
	Disks []string
	// Network is set if the machine has a network device.
	Network bool
	// Time is the host's, and Seed random bytes from it: an emulated machine has no good sources.
	Time time.Time
	Seed []byte
}

// Answer is the result of a request.
type Answer struct {
	Error string `json:",omitempty"`
	// Refused is set if the request itself is at fault.
	Refused bool `json:",omitempty"`
}

// Role is the role that a guest's program plays as the first process of a machine.
func Role() reexec.Role {
	return reexec.Role{Match: func(args []string) bool { return os.Getpid() == 1 && slices.Contains(args, Argument) }, Run: Main}
}

// Main never returns: a kernel whose first process ends panics.
func Main() {
	runtime.LockOSThread()
	err := reserve()
	if err == nil {
		err = start()
	}
	if err != nil {
		fmt.Fprintln(os.Stdout, "crannog: prepare the machine:", err) // on the console
	}
	powerOff()
}

// reserve takes the descriptors that the guest's channel gets, before Go's poller takes them for
// itself.
func reserve() error {
	for {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if fd > guestboot.ChannelFD+1 {
			return unix.Close(fd)
		}
	}
}

// powerOff ends the machine.
func powerOff() {
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // the machine ends instead of restarting
	select {}
}

// start prepares the machine and is the guest until the guest ends.
func start() error {
	if err := system(); err != nil {
		return err
	}
	if err := ports(); err != nil {
		return err
	}
	boot := os.Stdin
	if _, err := fmt.Fprintln(os.Stdout, Hello); err != nil {
		return err
	}
	r, err := read(boot)
	if err != nil {
		return err
	}
	refused, err := r.make()
	answer := Answer{Refused: refused}
	if err != nil {
		answer.Error = err.Error()
	}
	if data, bad := json.Marshal(answer); bad != nil || err != nil {
		_, _ = os.Stdout.Write(append(data, '\n')) // the machine ends in any case
		return errors.Join(err, bad)
	} else if _, err := os.Stdout.Write(append(data, '\n')); err != nil {
		return err
	}
	// The guest keeps its standard output only for itself.
	last, err := unix.FcntlInt(uintptr(1), unix.F_DUPFD_CLOEXEC, lastFD)
	if err != nil {
		return err
	}
	runtime.UnlockOSThread()
	status := guestmain.Run(guestboot.ChannelFlag)
	_, _ = unix.Write(last, []byte(ExitPrefix+strconv.Itoa(status)+"\n")) // the machine ends in any case
	return nil
}

// lastFD is the least descriptor for the line with the exit status.
const lastFD = 100

// read reads the request byte by byte: what follows it is the guest's.
func read(boot *os.File) (*Request, error) {
	var line []byte
	var one [1]byte
	for len(line) < largest {
		n, err := boot.Read(one[:])
		if err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
		if n == 1 && one[0] == '\n' {
			var r Request
			if err := json.Unmarshal(line, &r); err != nil {
				return nil, fmt.Errorf("request: %w", err)
			}
			return &r, nil
		}
		line = append(line, one[:n]...)
	}
	return nil, errors.New("the request is too long")
}

// largest is how large a request may be.
const largest = 1 << 20

// system mounts what a kernel shows, and loads its modules.
func system() error {
	for _, m := range [][3]string{{"devtmpfs", "/dev", "devtmpfs"}, {"proc", "/proc", "proc"}, {"sysfs", "/sys", "sysfs"}} {
		if err := unix.Mount(m[0], m[1], m[2], 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	list, err := os.Open(filepath.Join(bootfiles.ModulesDir, bootfiles.OrderName))
	if err != nil {
		return err
	}
	defer list.Close()
	for lines := bufio.NewScanner(list); lines.Scan(); {
		if err := load(lines.Text()); err != nil {
			return fmt.Errorf("module %s: %w", lines.Text(), err)
		}
	}
	// The kernel has them in its own memory now.
	return os.RemoveAll(bootfiles.ModulesDir)
}

func load(name string) error {
	f, err := os.Open(filepath.Join(bootfiles.ModulesDir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// ports opens the ports, and gives them the descriptors that the guest expects.
func ports() error {
	boot, err := openPort(BootPort, 0)
	if err != nil {
		return err
	}
	channel, err := openPort(ChannelPort, unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	for at, fd := range map[int]int{0: boot, 1: boot, guestboot.ChannelFD: channel, guestboot.ChannelFD + 1: channel} {
		if at == fd {
			continue
		}
		if err := unix.Dup3(fd, at, 0); err != nil {
			return err
		}
	}
	return nil
}

// openPort opens the port with a name. A port can be opened once only. Its descriptor is above those
// with a meaning.
func openPort(name string, flags int) (int, error) {
	path, err := await("the port "+name, func() string {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name") // fails only for patterns that are none
		for _, file := range names {
			if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == name {
				return filepath.Join("/dev", filepath.Base(filepath.Dir(file)))
			}
		}
		return ""
	})
	if err != nil {
		return 0, err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, lastFD)
}

// Devices appear some time after their module was loaded.
const (
	awaitTries = 20000
	awaitPause = time.Millisecond
)

// await repeats a search until it finds something.
func await(what string, search func() string) (string, error) {
	for range awaitTries {
		if found := search(); found != "" {
			return found, nil
		}
		time.Sleep(awaitPause)
	}
	return "", fmt.Errorf("%s does not appear", what)
}
