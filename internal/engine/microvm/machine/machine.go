// Package machine owns the work of the guest's program as the first process of a virtual machine,
// before it becomes the guest: it loads the kernel's modules, reads a request, mounts the disks and
// builds the root from them.
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

// Argument is the argument that selects this role in the first process.
const Argument = "crannog-machine"

// Names of the ports: at BootPort the first process reads its request and the guest its
// configuration, and both print. ChannelPort carries the streams of the guest.
const (
	BootPort    = "boot"
	ChannelPort = "channel"
)

// Serial numbers of the disks. RootDisk contains the image, and OwnDisk the sandbox's workspace and
// mounts.
const (
	RootDisk = "root"
	OwnDisk  = "own"
)

// Mount points of the disks while the root is built.
const (
	RootMount = "/disks/root"
	OwnMount  = "/disks/own"
)

// Lines that the first process prints at the boot port. Hello shows that the kernel runs. An Answer
// in JSON follows it, and then what the guest prints. ExitPrefix begins the line with the guest's
// exit status, which is the last one.
const (
	Hello      = "hello"
	ExitPrefix = "exit "
)

// Request describes the sandbox to create, as one line of JSON.
type Request struct {
	// Root describes the root. The sources of its trees are below the mount points of the disks.
	Root setup.Request
	// Tasks bounds the number of processes of the whole machine.
	Tasks int64
	// Disks lists the serial numbers of the disks that are mounted.
	Disks []string
	// Network is set if the machine has a network device.
	Network bool
	// Time is the host's time, and Seed has random bytes of the host, because an emulated machine
	// has no good source of either.
	Time time.Time
	Seed []byte
}

// Answer is the result of a request.
type Answer struct {
	Error string `json:",omitempty"`
	// Refused is set if the request itself is invalid.
	Refused bool `json:",omitempty"`
}

// Role is the role of the guest's program as the first process of a machine.
func Role() reexec.Role {
	return reexec.Role{Match: func(args []string) bool { return os.Getpid() == 1 && slices.Contains(args, Argument) }, Run: Main}
}

// Main prepares the machine and becomes the guest. It does not return, because a kernel panics when
// its first process ends.
func Main() {
	runtime.LockOSThread()
	err := reserveDescriptors()
	if err == nil {
		err = start()
	}
	if err != nil {
		fmt.Fprintln(os.Stdout, "crannog: prepare the machine:", err) // on the console
	}
	powerOff()
}

// reserveDescriptors occupies the descriptors of the guest's channel, before Go's poller takes
// them.
func reserveDescriptors() error {
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
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // QEMU ends instead of restarting the machine
	select {}
}

// start prepares the machine and runs the guest until it ends.
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
	r, err := readRequest(boot)
	if err != nil {
		return err
	}
	m, refused, err := r.make()
	answer := Answer{Refused: refused}
	if err != nil {
		answer.Error = err.Error()
	}
	if data, marshalErr := json.Marshal(answer); marshalErr != nil || err != nil {
		_, _ = os.Stdout.Write(append(data, '\n')) // the machine ends in any case
		return errors.Join(err, marshalErr)
	} else if _, err := os.Stdout.Write(append(data, '\n')); err != nil {
		return err
	}
	// The exit status needs a copy, because the guest takes over its standard output.
	statusFD, err := unix.FcntlInt(uintptr(1), unix.F_DUPFD_CLOEXEC, minFD)
	if err != nil {
		return err
	}
	runtime.UnlockOSThread()
	status := guestmain.RunIn(m, guestboot.ChannelFlag)
	_, _ = unix.Write(statusFD, []byte(ExitPrefix+strconv.Itoa(status)+"\n")) // the machine ends in any case
	return nil
}

// minFD is the lowest descriptor for files that must not collide with those of the guest.
const minFD = 100

// readRequest reads the request byte by byte, because the following bytes are for the guest.
func readRequest(boot *os.File) (*Request, error) {
	var line []byte
	var one [1]byte
	for len(line) < maxRequestSize {
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

// maxRequestSize bounds the size of a request.
const maxRequestSize = 1 << 20

// system mounts the kernel's own file systems, and loads its modules.
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
	// The kernel now has the modules in its own memory.
	return os.RemoveAll(bootfiles.ModulesDir)
}

// load loads a module.
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

// ports opens the ports at the descriptors that the guest expects.
func ports() error {
	boot, err := openPort(BootPort, 0)
	if err != nil {
		return err
	}
	channel, err := openPort(ChannelPort, unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	for target, fd := range map[int]int{0: boot, 1: boot, guestboot.ChannelFD: channel, guestboot.ChannelFD + 1: channel} {
		if target == fd {
			continue
		}
		if err := unix.Dup3(fd, target, 0); err != nil {
			return err
		}
	}
	return nil
}

// openPort opens the port with a name. A port can be opened only once. Its descriptor is above
// those that have a fixed meaning.
func openPort(name string, flags int) (int, error) {
	path, err := await("the port "+name, func() string {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name") // fails only for an invalid pattern
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
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, minFD)
}

// Devices appear some time after their modules are loaded.
const (
	awaitTries = 20000
	awaitPause = time.Millisecond
)

// await repeats a search until it finds something.
func await(name string, search func() string) (string, error) {
	for range awaitTries {
		if found := search(); found != "" {
			return found, nil
		}
		time.Sleep(awaitPause)
	}
	return "", fmt.Errorf("%s does not appear", name)
}
