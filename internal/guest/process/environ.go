package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/modules"
)

// environ returns the environment of a process. The sandbox's variables override PATH and the
// user's, and the request's override both.
func (s *Service) environ(u identity.User, request map[string]string) (map[string]string, error) {
	env := s.Environ(u)
	for name, value := range request {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.IndexByte(value, 0) >= 0 {
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("invalid environment variable %q", name))
		}
		env[name] = value
	}
	return env, nil
}

// formatEnv formats variables for the kernel, sorted.
func formatEnv(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// program returns the program to start for a command.
func (s *Service) program(ctx context.Context, u identity.User, config *pb.ProcessConfig, path, dir string) (*modules.Start, error) {
	cmd := config.GetCmd()
	argv := append([]string{cmd}, config.GetArgs()...)
	runner := s.cfg().Modules
	if runner == nil {
		name, err := program(cmd, path)
		return &modules.Start{Path: name, Argv: argv}, err
	}
	name, err := runner.Find(cmd, path, dir)
	if err != nil {
		return nil, err
	}
	start, err := runner.Prepare(ctx, func(work func() error) error { return s.cfg().Actor.Do(u, work) }, name, argv)
	if err != nil && connect.CodeOf(err) == connect.CodeUnknown {
		err = s.startError(u, cmd, dir, err)
	}
	return start, err
}

// program returns the path of the program, searching PATH for a name without a slash. The kernel
// checks whether the user may run it.
func program(cmd, path string) (string, error) {
	if strings.Contains(cmd, "/") {
		return cmd, nil
	}
	for _, dir := range filepath.SplitList(path) {
		// Skip empty and relative entries, which could run a file that an attacker left in the
		// working directory.
		if !filepath.IsAbs(dir) {
			continue
		}
		name := filepath.Join(dir, cmd)
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return name, nil
		}
	}
	return "", connect.NewError(connect.CodeNotFound, fmt.Errorf("command '%s' not found", cmd))
}

// startError explains why the kernel did not start a command. It checks the working directory only
// after the failure, so that successful starts are not delayed.
func (s *Service) startError(u identity.User, cmd, dir string, cause error) error {
	var text string
	code := connect.CodeInvalidArgument
	dirErr := s.cfg().Actor.Do(u, func() error { return checkDir(dir) })
	switch {
	case os.IsNotExist(dirErr):
		text = fmt.Sprintf("cwd '%s' does not exist", dir)
	case dirErr != nil:
		text = fmt.Sprintf("cwd '%s' cannot be entered: %v", dir, errno(dirErr))
	default:
		code, text = commandError(cmd, cause)
	}
	return connect.NewError(code, fmt.Errorf("%s", text))
}

// checkDir returns an error if dir cannot be the working directory of a process.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return syscall.ENOTDIR
	}
	_, err = os.Stat(dir + "/.") // fails without the right to search it
	return err
}

func commandError(cmd string, cause error) (connect.Code, string) {
	reason := errno(cause)
	if errors.Is(reason, syscall.ENAMETOOLONG) && len(cmd) < syscall.PathMax {
		reason = syscall.E2BIG // gVisor then reports that an argument is too long
	}
	switch {
	case errors.Is(reason, syscall.ENOENT), errors.Is(reason, syscall.ENOTDIR):
		return connect.CodeNotFound, fmt.Sprintf("command '%s' not found", cmd)
	case errors.Is(reason, syscall.EACCES), errors.Is(reason, syscall.EISDIR):
		return connect.CodePermissionDenied, fmt.Sprintf("command '%s' is not executable", cmd)
	case errors.Is(reason, syscall.ENOEXEC), errors.Is(reason, syscall.ELOOP), errors.Is(reason, syscall.ENAMETOOLONG):
		return connect.CodeInvalidArgument, fmt.Sprintf("command '%s' cannot run: %v", cmd, cause)
	case errors.Is(reason, syscall.E2BIG):
		return connect.CodeInvalidArgument, "arguments and environment are too long"
	case errors.Is(reason, syscall.EINVAL):
		return connect.CodeInvalidArgument, "command or arguments contain a NUL byte"
	case errors.Is(reason, syscall.EAGAIN):
		return connect.CodeResourceExhausted, "the sandbox's limit of processes is reached"
	case errors.Is(reason, syscall.ENOMEM):
		return connect.CodeResourceExhausted, "the sandbox is out of memory"
	case errors.Is(reason, syscall.EMFILE), errors.Is(reason, syscall.ENFILE):
		return connect.CodeResourceExhausted, "the sandbox has too many open files"
	}
	return connect.CodeInternal, fmt.Sprintf("start '%s': %v", cmd, cause)
}

// errno returns the kernel's error that err wraps, or err itself.
func errno(err error) error {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	return err
}
