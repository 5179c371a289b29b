package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/guest/connect"
	"github.com/crannog/crannog/internal/guest/sftpserver"
	"github.com/crannog/crannog/internal/sshserver"
)

// guestProgram is the guest's own program inside, which the sandbox cannot change.
const guestProgram = "/.crannog/crannog-guest"

// sshSandbox runs what SSH clients ask for as commands of a sandbox.
type sshSandbox struct {
	// command returns a command with the user, the directory and the variables of the endpoint.
	command func(ctx context.Context, args []string) *crannog.Cmd
}

// Start starts a command. The end of ctx hangs it up.
func (s sshSandbox) Start(ctx context.Context, c sshserver.Command) (sshserver.Process, error) {
	var args []string
	switch c.Kind {
	case sshserver.Shell:
		args = []string{"/bin/sh", "-c", anyShell}
	case sshserver.Exec:
		args = []string{"/bin/sh", "-c", c.Line}
	case sshserver.SFTP:
		args = []string{guestProgram, sftpserver.Role}
	case sshserver.Connect:
		args = append([]string{guestProgram}, connect.Args(c.Port)...)
	default:
		return nil, fmt.Errorf("commands of kind %d are not supported", c.Kind)
	}
	cmd := s.command(ctx, args)
	cmd.Env = append(cmd.Env, c.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.Hangup, cmd.Binary = true, c.TTY == nil
	if c.TTY != nil {
		cmd.TTY = &crannog.Size{Cols: c.TTY.Cols, Rows: c.TTY.Rows}
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return sshProcess{cmd}, nil
}

// sshProcess is a command of an SSH client.
type sshProcess struct{ cmd *crannog.Cmd }

// Wait returns how the command ended.
func (p sshProcess) Wait() (sshserver.Exit, error) {
	err := p.cmd.Wait()
	if exit, ok := errors.AsType[*crannog.ExitError](err); ok {
		return sshserver.Exit{Code: exit.ExitCode(), Signal: exit.Signal()}, nil
	}
	if errors.Is(err, io.EOF) {
		return sshserver.Exit{}, nil // the client reads no more
	}
	return sshserver.Exit{}, err
}

// Signal sends a signal to the command.
func (p sshProcess) Signal(sig syscall.Signal) error { return p.cmd.Signal(sig) }

// Resize changes the size of the command's terminal.
func (p sshProcess) Resize(size sshserver.Size) error {
	return p.cmd.Resize(crannog.Size{Cols: size.Cols, Rows: size.Rows})
}
