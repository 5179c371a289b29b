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

const (
	// timeout bounds the time for one module.
	timeout = 2 * time.Minute
	// largest bounds a compiled module.
	largest = 1 << 30
	// words bounds how much of a compiler's message is stored.
	words = 4 << 10
	// overflow is the user ID of a process without rights on files.
	overflow = 65534
)

// compile compiles a module in a separate process. The module may be hostile, so the process has no
// network and no user of the host, and drops its files and most system calls before it reads the
// first byte (package runner).
func compile(ctx context.Context, program string, module []byte, to io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	file, err := os.Open(program)
	if err != nil {
		return err
	}
	defer file.Close()
	// The program is named by its descriptor, because the process's user may not be able to search
	// its path.
	cmd := exec.CommandContext(ctx, fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	cmd.Args = []string{guestboot.RunnerArg0, "compile"}
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(module)
	out, stderr := &bounded{w: to, left: largest}, &bounded{w: &strings.Builder{}, left: words, drop: true}
	cmd.Stdout, cmd.Stderr = out, stderr
	user, group := os.Getuid(), os.Getgid()
	if user == 0 {
		user, group = overflow, overflow
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: overflow, HostID: user, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: overflow, HostID: group, Size: 1}},
		Credential:  &syscall.Credential{Uid: overflow, Gid: overflow, NoSetGroups: true},
		Setsid:      true, Pdeathsig: syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("compile: %w: %s", err, strings.TrimSpace(stderr.w.(*strings.Builder).String())) //nolint:forcetypeassert // made above
	}
	return nil
}

// bounded is a writer with a maximum size. Data beyond it is dropped or causes an error.
type bounded struct {
	w    io.Writer
	left int
	drop bool
}

// Write implements io.Writer.
func (b *bounded) Write(data []byte) (int, error) {
	some := data[:min(len(data), b.left)]
	n, err := b.w.Write(some)
	b.left -= n
	if err != nil {
		return n, err
	}
	if len(some) < len(data) && !b.drop {
		return n, errors.New("the compiled module is too large")
	}
	return len(data), nil
}
