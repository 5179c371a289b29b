package machine

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/ids"
)

// overseerArg0 is the argv[0] of the overseer, a second process of the machine. It keeps the rights
// that the guest gives up, because a machine that is restored needs a new clock, seed and identity.
// It stops all programs while the machine is saved, so that no two machines that continue from one
// state draw the same random numbers. It takes orders from the guest only. Programs of root cannot
// trace it, because it has capabilities that they lack. If root kills it, the machine can no longer
// be saved.
const overseerArg0 = "crannog-overseer"

// Descriptors of the overseer.
const (
	orderFD  = 3 // orders and outcomes, one JSON object per line
	groupsFD = 4 // the directory of the machine's control groups
)

// order is a request to the overseer.
type order struct {
	Op       operation
	Time     time.Time
	Seed     []byte
	Hostname string
	Fresh    bool
}

// operation is the kind of an order, and of an instruction of the engine.
type operation string

const (
	opHold    operation = "hold"    // stop all programs
	opRelease operation = "release" // let them continue
	opRenew   operation = "renew"   // set the clock and the seed of a restored machine
	opBecome  operation = "become"  // set the host name and the boot ID
)

// outcome is the result of an order.
type outcome struct {
	Error string `json:",omitempty"`
}

// OverseerRole is the role of the overseer.
func OverseerRole() reexec.Role {
	return reexec.Role{Match: reexec.Arg0(overseerArg0), Run: oversee}
}

// oversee carries out orders until the guest ends.
func oversee() {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		os.Exit(1)
	}
	unix.CloseOnExec(orderFD)
	unix.CloseOnExec(groupsFD)
	socket := os.NewFile(orderFD, "orders")
	decoder, encoder := json.NewDecoder(socket), json.NewEncoder(socket)
	for {
		var o order
		if decoder.Decode(&o) != nil {
			os.Exit(0)
		}
		var result outcome
		if err := o.do(); err != nil {
			result.Error = err.Error()
		}
		if encoder.Encode(result) != nil {
			os.Exit(0)
		}
	}
}

// do carries out an order.
func (o *order) do() error {
	switch o.Op {
	case opHold:
		return hold()
	case opRelease:
		return writeGroup(heldGroup+"/cgroup.freeze", "0")
	case opRenew:
		return errors.Join(setClock(o.Time), addSeed(o.Seed))
	case opBecome:
		return become(o.Hostname, o.Fresh)
	}
	return fmt.Errorf("unknown order %q", o.Op)
}

// Control groups of the machine, below the directory groupsFD. Programs that are stopped are in
// heldGroup, and stay in it when they continue.
const (
	sandboxGroup = "sandbox"
	heldGroup    = sandboxGroup + "/held"
)

// writeGroup writes a setting of a control group.
func writeGroup(name, value string) error {
	fd, err := unix.Openat(groupsFD, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return &os.PathError{Op: "write", Path: name, Err: err}
	}
	return nil
}

// readGroup returns the lines of a file of a control group.
func readGroup(name string) (lines []string, err error) {
	fd, err := unix.Openat(groupsFD, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	scanner := bufio.NewScanner(f)
	for scanner.Scan() {
		lines = append(lines, scanner.Text())
	}
	return lines, scanner.Err()
}

// holdTries bounds how often hold looks whether the processes have stopped.
const holdTries = 60000

// hold stops all processes of the sandbox but the guest.
func hold() error {
	if err := unix.Mkdirat(groupsFD, heldGroup, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	// A process is stopped as soon as it enters the group.
	if err := writeGroup(heldGroup+"/cgroup.freeze", "1"); err != nil {
		return err
	}
	for range holdTries {
		pids, err := readGroup(sandboxGroup + "/cgroup.procs")
		if err != nil {
			return err
		}
		others := false
		for _, pid := range pids {
			if pid == "1" {
				continue
			}
			others = true
			if err := writeGroup(heldGroup+"/cgroup.procs", pid); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		events, err := readGroup(heldGroup + "/cgroup.events")
		if err != nil {
			return err
		}
		if !others && slices.Contains(events, "frozen 1") {
			return nil
		}
		time.Sleep(awaitPause)
	}
	return errors.New("the programs do not stop")
}

// become sets the host name, and shows a new boot ID if fresh is set.
func become(hostname string, fresh bool) error {
	if hostname != "" {
		if err := unix.Sethostname([]byte(hostname)); err != nil {
			return fmt.Errorf("host name: %w", err)
		}
	}
	if !fresh {
		return nil
	}
	if err := showBootID(); err != nil {
		return fmt.Errorf("boot ID: %w", err)
	}
	return nil
}

// bootIDDir and bootIDName are the path of the boot ID.
const (
	bootIDDir  = "/proc/sys/kernel/random"
	bootIDName = "boot_id"
)

// showBootID mounts a file with a new boot ID over the kernel's, which never changes. No program
// runs at this time.
func showBootID() error {
	path := bootIDDir + "/" + bootIDName
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return err // EINVAL: nothing is mounted there yet
	}
	if err := unix.Mount("tmpfs", bootIDDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,mode=755"); err != nil {
		return err
	}
	id := ids.NewUUID()
	err := os.WriteFile(path, fmt.Appendf(nil, "%x-%x-%x-%x-%x\n", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), 0o444)
	file := -1
	if err == nil {
		file, err = unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	}
	if err = errors.Join(err, unix.Unmount(bootIDDir, unix.MNT_DETACH)); err != nil {
		return err
	}
	defer unix.Close(file)
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
	if err := unix.MountSetattr(file, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return err
	}
	return unix.MoveMount(file, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// startOverseer starts the overseer and returns the guest's end of its socket. groups is the
// directory of the machine's control groups.
func startOverseer(groups *os.File) (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(fds[1]), "orders")
	defer theirs.Close()
	ours, err := unix.FcntlInt(uintptr(fds[0]), unix.F_DUPFD_CLOEXEC, minFD)
	if err := errors.Join(err, unix.Close(fds[0])); err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe") //nolint:noctx // it ends with the machine
	cmd.Args, cmd.ExtraFiles, cmd.Env = []string{overseerArg0}, []*os.File{theirs, groups}, []string{"GOMAXPROCS=1"}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the overseer: %w", err), unix.Close(ours))
	}
	return os.NewFile(uintptr(ours), "orders"), cmd.Process.Release()
}

// limitProcesses puts this process and everything that it starts into a group with a limit of
// processes, which also applies to root. No program can reach the group's files. The overseer, which
// it starts, is outside of the group.
func (r *Request) limitProcesses() (overseer *os.File, err error) {
	const mount = "/groups"
	if err := os.MkdirAll(mount, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount("cgroup2", mount, "cgroup2", 0, ""); err != nil {
		return nil, err
	}
	groups, err := os.Open(mount)
	if err != nil {
		return nil, err
	}
	defer groups.Close()
	if overseer, err = startOverseer(groups); err != nil {
		return nil, err
	}
	group := mount + "/" + sandboxGroup
	if err := os.WriteFile(mount+"/cgroup.subtree_control", []byte("+pids"), 0); err != nil {
		return nil, err
	}
	if err := os.Mkdir(group, 0o700); err != nil {
		return nil, err
	}
	return overseer, errors.Join(
		os.WriteFile(group+"/pids.max", []byte(strconv.FormatInt(r.Tasks, 10)), 0),
		os.WriteFile(group+"/cgroup.procs", []byte("1"), 0),
		unix.Unmount(mount, unix.MNT_DETACH),
	)
}

// trimmed returns a text on one line.
func trimmed(text string) string { return strings.Join(strings.Fields(text), " ") }
