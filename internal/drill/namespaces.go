package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNotSeparate means that a process does not have namespaces of its own, which Start gives.
var ErrNotSeparate = errors.New("this process was not started by crannog drill in namespaces of its own")

// Descriptors that Start gives to its child.
const (
	aliveFD = 3 // the reading end of a pipe whose other end only the parent has
	netFD   = 4 // the network namespace of the parent
	mountFD = 5 // the mount namespace of the parent
)

// namespaces are what Start makes new for the drill, and where the parent's are inherited. The
// namespace of processes is what ends every sandbox, gateway and server of a drill that is killed.
var namespaces = []struct {
	name string
	kind uintptr
	fd   int
}{{"net", unix.CLONE_NEWNET, netFD}, {"mnt", unix.CLONE_NEWNS, mountFD}}

// Start runs this program with the arguments as the first process of new namespaces, and returns
// its exit code. When the context ends, the child gets SIGTERM, and Start waits for it. When this
// process ends, whatever ends it, the kernel ends everything in the namespaces.
func Start(ctx context.Context, args, env []string, in io.Reader, out, errs io.Writer) (int, error) {
	// The kernel sends the parent-death signal when the thread that started the child ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	alive, hold, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer hold.Close()
	defer alive.Close()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...) //nolint:gosec // this program
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = in, out, errs, env
	cmd.ExtraFiles = []*os.File{alive}
	for _, n := range namespaces {
		f, err := os.Open("/proc/thread-self/ns/" + n.name)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL,
		// The terminal's interrupts go to this process only, which passes each on once.
		Setpgid: true,
	}
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// Separate returns an error unless this process is in other network and mount namespaces than the
// process that called Start. Someone who passes the hidden flag by hand on the host has no
// descriptors of a parent's namespaces, and then nothing may be mounted.
func Separate() error {
	for _, n := range namespaces {
		kind, err := unix.IoctlRetInt(n.fd, unix.NS_GET_NSTYPE)
		if err != nil || uintptr(kind) != n.kind {
			return fmt.Errorf("%w: descriptor %d is not a namespace", ErrNotSeparate, n.fd)
		}
		var parents, own unix.Stat_t
		if err := errors.Join(unix.Fstat(n.fd, &parents), unix.Stat("/proc/thread-self/ns/"+n.name, &own)); err != nil {
			return err
		}
		if parents.Dev == own.Dev && parents.Ino == own.Ino {
			return fmt.Errorf("%w: its namespace %s is its parent's", ErrNotSeparate, n.name)
		}
	}
	return nil
}

// First reports whether this process is the first one in the namespaces of Start.
func First() bool { return os.Getpid() == 1 }

// RunFirst starts the drill and waits for it and for every orphan, and returns the drill's exit
// code. When the first process ends, the kernel ends all others in the namespace.
func RunFirst(args, env []string) (int, error) {
	if err := Separate(); err != nil {
		return 0, err
	}
	go endWithParent()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return 0, fmt.Errorf("separate the mounts from the host's: %w", err)
	}
	// The host's /proc has no processes of this namespace.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return 0, fmt.Errorf("mount /proc: %w", err)
	}
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	for fd := aliveFD; fd <= mountFD; fd++ {
		files = append(files, os.NewFile(uintptr(fd), strconv.Itoa(fd)))
	}
	// What os/exec would wait for, the loop below waits for.
	child, err := os.StartProcess("/proc/self/exe", append([]string{os.Args[0]}, args...), &os.ProcAttr{Env: env, Files: files})
	if err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			_ = child.Signal(s) // it may have ended
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the drill: %w", err)
		case pid == child.Pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == child.Pid:
			return status.ExitStatus(), nil
		}
	}
}

// endWithParent ends this process when its parent does. The parent-death signal does the same,
// except for a parent that ended before the child had asked for it.
func endWithParent() {
	var one [1]byte
	for {
		if _, err := unix.Read(aliveFD, one[:]); !errors.Is(err, unix.EINTR) {
			os.Exit(128 + int(syscall.SIGKILL))
		}
	}
}
