package guestmain

import (
	"context"
	"log/slog"
	"os/exec"
	"syscall"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/census"
	"github.com/crannog/crannog/internal/guest/interpreter"
	"github.com/crannog/crannog/internal/guest/modules"
	"github.com/crannog/crannog/internal/guest/process"
)

// NewInterpreter returns a code interpreter that starts its workers through g. If programs are
// WebAssembly modules, runner starts them, and otherwise it is nil.
func NewInterpreter(g *guest.Guest, runner *modules.Runner, log *slog.Logger) *interpreter.Server {
	opts := interpreter.Options{
		Starter:     starter{g},
		Home:        g.Environ()["HOME"],
		Env:         g.Environ,
		AccessToken: g.AccessToken,
		Log:         log,
	}
	if runner != nil {
		opts.QuickJS = func(ctx context.Context) (interpreter.Program, error) {
			start, err := runner.PrepareJavaScript(ctx)
			if err != nil {
				return interpreter.Program{}, err
			}
			return interpreter.Program{Path: start.Path, Argv: start.Argv, Files: start.Files}, nil
		}
	}
	return interpreter.New(opts)
}

// starter starts workers as the sandbox's user.
type starter struct{ guest *guest.Guest }

func (s starter) Start(cmd *exec.Cmd) (interpreter.Process, error) {
	c, err := s.guest.Command(cmd)
	if err != nil {
		return nil, err
	}
	return worker{c}, nil
}

// worker adapts a started command to interpreter.Process.
type worker struct{ command *process.Command }

func (w worker) Family() ([]census.Member, error) { return w.command.Family() }

func (w worker) Signal(sig syscall.Signal) error { return w.command.Signal(sig) }

func (w worker) Wait() interpreter.Exit {
	status := w.command.Wait()
	if status.Signaled() {
		return interpreter.Exit{Signal: status.Signal()}
	}
	return interpreter.Exit{Code: status.ExitStatus()}
}
