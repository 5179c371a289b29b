package process

import (
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"syscall"

	"github.com/crannog/crannog/internal/guest/census"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/lineage"
	"github.com/crannog/crannog/internal/guest/modules"
)

// Command is a process that another service of the guest started. It is in no list and has no
// streams.
type Command struct {
	pid  int
	mark lineage.Mark
	exit <-chan syscall.WaitStatus
}

// Command starts cmd as u. The caller sets its files, arguments and directory. The standard streams
// must be files, because no goroutine copies them. cmd.Wait must not be called. If u may not enter
// the directory, the error is an *fs.PathError with Op "chdir".
func (s *Service) Command(u identity.User, cmd *exec.Cmd) (*Command, error) {
	if runner := s.cfg().Modules; runner != nil && !runner.IsRunner(cmd.Path) {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, modules.ErrOnly)
	}
	attr := s.cfg().Actor.Attr(u)
	if cmd.SysProcAttr != nil {
		merged := *cmd.SysProcAttr
		merged.Credential = attr.Credential
		attr = &merged
	}
	cmd.SysProcAttr = attr
	pid, exit, err := s.cfg().Reaper.Start(func() (int, error) {
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	})
	if err != nil {
		dirErr := s.cfg().Actor.Do(u, func() error { return checkDir(cmd.Dir) })
		if cmd.Dir != "" && dirErr != nil {
			err = &fs.PathError{Op: "chdir", Path: cmd.Dir, Err: errno(dirErr)}
		}
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	// The process runs one of Crannog's own programs and has not started any other yet. An error
	// means that it has already ended, which Wait reports.
	mark := lineage.New()
	_ = mark.Set(pid)
	s.origins.add(mark, census.Command{PID: pid, Args: cmd.Args})
	// The reaper waits for the process, so the library's handle is not needed.
	return &Command{pid, mark, exit}, cmd.Process.Release()
}

// PID returns the process ID.
func (c *Command) PID() int { return c.pid }

// Family returns the process and all other processes of its family. It is empty once the process
// has ended.
func (c *Command) Family() ([]census.Member, error) {
	return census.Family(procDir, c.pid, c.mark.Has)
}

// Signal signals the process group.
func (c *Command) Signal(sig syscall.Signal) error { return syscall.Kill(-c.pid, sig) }

// Wait returns how the process ended. It may be called once.
func (c *Command) Wait() syscall.WaitStatus { return <-c.exit }

// Environ returns the default environment of a process of u.
func (s *Service) Environ(u identity.User) map[string]string {
	env := map[string]string{"PATH": identity.SearchPath(u.Home, s.cfg().Path), "HOME": u.Home, "USER": u.Name, "LOGNAME": u.Name}
	if s.cfg().NpmConfig != "" {
		env["NPM_CONFIG_GLOBALCONFIG"] = s.cfg().NpmConfig
	}
	maps.Copy(env, s.cfg().Env())
	return env
}
