package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress/tun"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/fault"
)

// namespaces lists the namespaces of each sandbox.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// exitName is the file for the guest's exit status.
const exitName = "exit"

// child is the first process of a sandbox while it starts.
type child struct {
	cmd     *exec.Cmd
	control *os.File // SOCK_SEQPACKET
	config  *os.File // its standard input
	output  *os.File // its standard output and error
}

func (c *child) close() {
	for _, f := range []*os.File{c.control, c.config, c.output} {
		if f != nil {
			_ = f.Close() // everything is written by now
		}
	}
}

// guestProgram returns the host's path of the guest's program.
func guestProgram(image engine.Image) (string, error) {
	for _, b := range image.View().Binds {
		if b.Target == image.Guest {
			return b.Source, nil
		}
	}
	return "", fault.Newf(fault.Invalid, "image_invalid", "the image does not show a guest program at %q", image.Guest)
}

// openAbove opens a program at a descriptor that exec.Cmd does not overwrite in the child. While
// the standard library arranges the files of a child, it copies some of them, and its own pipe, to
// the numbers that follow the highest of them. A program at such a number would be replaced by one
// of these files, and its execution refused.
func openAbove(path string, files []*os.File) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lowest := len(files)
	for _, other := range files {
		lowest = max(lowest, int(other.Fd()))
	}
	lowest += len(files) + 3 // a copy of each file and of the pipe, and a number that is skipped
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, lowest)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// startChild starts the first process, which waits for its request.
func (e *Engine) startChild(b *instance, spec engine.Spec) (_ *child, err error) {
	path, err := guestProgram(spec.Image)
	if err != nil {
		return nil, err
	}
	c := &child{}
	var childFiles []*os.File
	defer func() {
		closeFiles(childFiles)
		if err != nil {
			c.close()
		}
	}()
	listener, err := sandboxdir.Listen(b.dir)
	if err != nil {
		return nil, err
	}
	childFiles = append(childFiles, listener)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	c.control = os.NewFile(uintptr(fds[0]), "control")
	childFiles = append(childFiles, os.NewFile(uintptr(fds[1]), "control"))
	exit, err := os.OpenFile(filepath.Join(b.dir, exitName), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	childFiles = append(childFiles, exit)
	if e.variant != nil {
		service, err := e.variant.serve()
		if err != nil {
			return nil, err
		}
		childFiles = append(childFiles, service)
	}
	extraFiles := childFiles
	if spec.Egress.Kind == engine.EgressProxy {
		socket, err := openGateway(b.dir, b.rec)
		if err != nil {
			return nil, fmt.Errorf("network: %w", err)
		}
		childFiles = append(childFiles, socket)
		extraFiles = extraFiles[:len(extraFiles):len(extraFiles)]
		if e.variant == nil {
			extraFiles = append(extraFiles, nil) // there is no service
		}
		extraFiles = append(extraFiles, socket)
	}
	in, config, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.config, childFiles = config, append(childFiles, in)
	output, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.output, childFiles = output, append(childFiles, out)

	program, err := openAbove(path, childFiles)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	// The program is named by its descriptor, because the sandbox's IDs may not be able to search
	// its path.
	c.cmd = exec.Command(fmt.Sprintf("/proc/self/fd/%d", program.Fd())) //nolint:noctx // it outlives the call
	c.cmd.Args = []string{setup.Arg0, e.tag() + "-" + spec.ID}
	c.cmd.Env = []string{}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = in, out, out
	c.cmd.ExtraFiles = extraFiles
	c.cmd.SysProcAttr = e.attributes(b.rec)
	start := c.cmd.Start
	if b.rec.Group != nil {
		// The limits are in force before the process starts.
		start = func() error { return b.rec.Group.Start(c.cmd) }
	}
	if err := start(); err != nil {
		return nil, e.startFault(err)
	}
	return c, nil
}

// tag identifies the state directory in process lists. It is a hash, because programs in the
// sandbox can read it and should not learn the path.
func (e *Engine) tag() string { return Tag(e.dir) }

// Tag returns the first part of the names of the sandboxes' first processes, for a directory of the
// engine.
func Tag(dir string) string {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(dir)) // writing to a hash does not fail
	return fmt.Sprintf("%016x", hash.Sum64())
}

// attributes returns the namespaces of a first process and its IDs in them.
func (e *Engine) attributes(rec record) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags: namespaces,
		// Signals of the server's terminal must not reach its sandboxes.
		Setsid: true,
	}
	if _, err := os.Stat("/proc/self/ns/time"); err == nil {
		attr.Unshareflags = unix.CLONE_NEWTIME
	}
	if !e.rootless {
		all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: rec.idBase(), Size: rangeIDs}}
		attr.UidMappings, attr.GidMappings, attr.GidMappingsEnableSetgroups = all, all, true
		attr.Credential = &syscall.Credential{Uid: 0, Gid: 0}
		return attr
	}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: engine.UserID, HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: engine.UserID, HostID: os.Getgid(), Size: 1}}
	// A process of a user other than root loses all capabilities at exec except these.
	attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_CHOWN}
	return attr
}

// request sends the first process its request and returns the gateway's end of the network, if
// there is one.
func (e *Engine) request(c *child, b *instance, spec engine.Spec) (device *os.File, err error) {
	list, err := treesOf(spec)
	if err != nil {
		return nil, err
	}
	arguments, err := e.arguments(spec)
	if err != nil {
		return nil, err
	}
	r := setup.Request{
		Arguments: arguments,
		Hostname:  spec.Hostname, Links: spec.Links, Hide: spec.Hide, Absent: spec.Absent, ReadOnly: spec.ReadOnly,
		Limits: e.Info().Hold(spec.Limits), Users: !e.rootless, Tap: spec.Egress.Kind == engine.EgressTap && e.rootless, Gateway: spec.Egress.Kind == engine.EgressProxy, CPUs: spec.Limits.Processors(), Groups: b.rec.Group.Shown(),
	}
	for _, t := range list {
		if e.rootless {
			t.Source = t.source
		}
		r.Trees = append(r.Trees, t.Tree)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if err := send(c.control, data, nil); err != nil {
		return nil, err
	}
	if !e.rootless {
		files, err := e.openTrees(list, c.cmd.Process.Pid, b.rec.idBase())
		if err != nil {
			return nil, err
		}
		defer closeFiles(files)
		if spec.Egress.Kind == engine.EgressTap {
			if device, err = tapIn(c.cmd.Process.Pid); err != nil {
				return nil, err
			}
		}
		for _, f := range files {
			if err := send(c.control, []byte{0}, f); err != nil {
				return device, err
			}
		}
	}
	received, err := answer(c.control)
	if received != nil {
		device = received
	}
	return device, err
}

// tapIn creates a network interface in the network namespace of a process and returns the gateway's
// end.
func tapIn(pid int) (*os.File, error) {
	type result struct {
		device *os.File
		err    error
	}
	done := make(chan result, 1)
	var onThread func()
	onThread = func() {
		// The thread has changed its namespace, so it must end with the goroutine.
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The first thread of a process never ends. While it is locked here, the next goroutine
			// gets another thread.
			defer runtime.UnlockOSThread()
			var retry sync.WaitGroup
			retry.Go(onThread)
			retry.Wait()
			return
		}
		r := result{err: joinNetwork(pid)}
		if r.err == nil {
			r.device, r.err = tun.New(setup.Interface, 0)
		}
		done <- r
	}
	go onThread()
	r := <-done
	if r.err != nil {
		return nil, fmt.Errorf("network interface: %w", r.err)
	}
	return r.device, nil
}

// joinNetwork moves the calling thread into the network namespace of a process.
func joinNetwork(pid int) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	defer f.Close()
	return os.NewSyscallError("setns", unix.Setns(int(f.Fd()), unix.CLONE_NEWNET))
}

// send sends one message, with a descriptor unless file is nil.
func send(control *os.File, data []byte, file *os.File) error {
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	for {
		err := unix.Sendmsg(int(control.Fd()), data, rights, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("sendmsg", err)
		}
	}
}

// answer reads the result of a request.
func answer(control *os.File) (device *os.File, err error) {
	data, rights := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	var n, controls int
	for {
		n, controls, _, _, err = unix.Recvmsg(int(control.Fd()), data, rights, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, os.NewSyscallError("recvmsg", err)
	}
	if n == 0 {
		return nil, errEnded
	}
	if messages, err := unix.ParseSocketControlMessage(rights[:controls]); err == nil && len(messages) == 1 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			device = os.NewFile(uintptr(fds[0]), "tap")
		}
	}
	var a setup.Answer
	err = json.Unmarshal(data[:n], &a)
	switch {
	case err != nil:
	case a.Refused:
		err = fault.Newf(fault.Invalid, "path_not_covered", "a path of the policy cannot be hidden or protected: %s", a.Error).
			WithHint("name paths that exist in the sandbox, without symbolic links at their end")
	case a.Error != "":
		err = errors.New(a.Error)
	case a.Tap != (device != nil):
		err = errors.New("the first process did not send the network interface")
	}
	if err != nil && device != nil {
		return nil, errors.Join(err, device.Close())
	}
	return device, err
}

// errEnded is returned if the first process ended without an answer.
var errEnded = errors.New("the first process ended before it was ready")
