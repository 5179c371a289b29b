package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/guestboot"
)

// Limits of the compilation of one module.
const (
	timeout     = 2 * time.Minute
	maxCompiled = 1 << 30 // bytes of the result
	maxMessage  = 4 << 10 // bytes of the error message
)

// overflowID is the user ID of a process without rights on files.
const overflowID = 65534

// compile compiles a module in a separate process. The module may be hostile, so the process has no
// network and no rights of a user of the host. It drops its files and most system calls before it
// reads the first byte (package runner).
func compile(ctx context.Context, program string, module []byte, to io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	file, err := os.Open(program)
	if err != nil {
		return err
	}
	defer file.Close()
	// The program is named by its descriptor, because the process's user may not be able to search
	// its path. It is the child's number: at its number here, the standard library could put
	// another file of the child.
	cmd := exec.CommandContext(ctx, "/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{file}
	cmd.Args = []string{guestboot.RunnerArg0, "compile"}
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(module)
	out, stderr := &limitedWriter{w: to, left: maxCompiled}, &limitedWriter{w: &strings.Builder{}, left: maxMessage, drop: true}
	cmd.Stdout, cmd.Stderr = out, stderr
	user, group := os.Getuid(), os.Getgid()
	if user == 0 {
		user, group = overflowID, overflowID
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: overflowID, HostID: user, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: overflowID, HostID: group, Size: 1}},
		Credential:  &syscall.Credential{Uid: overflowID, Gid: overflowID, NoSetGroups: true},
		Setsid:      true, Pdeathsig: syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("compile: %w: %s", err, strings.TrimSpace(stderr.w.(*strings.Builder).String())) //nolint:forcetypeassert // created above
	}
	return nil
}

// limitedWriter is a writer with a maximum size. Data beyond it is dropped or causes an error.
type limitedWriter struct {
	w    io.Writer
	left int
	drop bool
}

// Write implements io.Writer.
func (l *limitedWriter) Write(data []byte) (int, error) {
	accepted := data[:min(len(data), l.left)]
	n, err := l.w.Write(accepted)
	l.left -= n
	if err != nil {
		return n, err
	}
	if len(accepted) < len(data) && !l.drop {
		return n, errors.New("the compiled module is too large")
	}
	return len(data), nil
}
