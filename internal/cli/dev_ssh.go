package cli

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/devcontainer"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sshserver"
)

// devServices are what listens on this machine for a development container while crannog dev runs.
type devServices struct {
	cancel context.CancelFunc
	all    sync.WaitGroup
}

// end closes everything and waits for it.
func (d *devServices) end() {
	d.cancel()
	d.all.Wait()
}

// use runs the user's command, or a shell, or only the SSH endpoint, with the ports forwarded.
func (s *devSession) use(ctx context.Context, command []string) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	services := &devServices{cancel: cancel}
	defer services.end()
	sandbox := sshSandbox{func(ctx context.Context, args []string) *crannog.Cmd { return s.command(ctx, args, false) }}
	if err := s.forwardPorts(ctx, services, sandbox); err != nil {
		return 0, err
	}
	if !s.flags.ssh {
		return s.run(ctx, command)
	}
	e := &sshEndpoint{
		app: s.app, flags: &s.flags.endpoint, sandbox: sandbox, name: filepath.Base(s.dir), id: s.plan.ID,
		user: first(s.plan.User, loginName(ctx, sandbox.command)),
	}
	view, serve, err := e.open()
	if err != nil {
		return 0, err
	}
	if len(command) > 0 {
		if !s.quiet && view.File == "" {
			// Standard output belongs to the command.
			_, _ = s.Stderr.Write([]byte(view.Config)) // if it is closed, there is no other place
		}
		services.all.Go(func() {
			if err := serve(ctx); err != nil {
				s.note("the SSH endpoint ended: %v", err)
			}
		})
		return s.run(ctx, command)
	}
	described := s.describe()
	described.SSH = &view
	if err := e.announce(view, described); err != nil {
		return 0, err
	}
	return 0, interruptible(ctx, serve)
}

// forwardPorts listens on this machine for the ports of the configuration.
func (s *devSession) forwardPorts(ctx context.Context, services *devServices, sandbox sshserver.Sandbox) error {
	if s.flags.noForward {
		return nil
	}
	for _, port := range s.plan.Ports {
		attributes := s.plan.PortAttributes[port]
		listener, err := s.listenFor(port, attributes)
		if err != nil {
			return err
		}
		about := ""
		if attributes.Label != "" {
			about = " (" + inert(attributes.Label) + ")"
		}
		s.note("127.0.0.1:%d is port %d of the sandbox%s", portOf(listener), port, about)
		services.all.Go(func() {
			failed := func(err error) {
				if s.verbose {
					s.note("port %d of the sandbox: %v", port, err)
				}
			}
			if err := sshserver.Forward(ctx, sandbox, listener, port, failed); err != nil {
				s.note("port %d of the sandbox is not forwarded any more: %v", port, err)
			}
		})
	}
	return nil
}

// firstUnprivileged is the first port that every user may listen on.
const firstUnprivileged = 1024

// listenFor listens at the port with the number of the sandbox's port, or at a free one. The number
// comes from a file of a repository, so it is never a privileged port of this machine, even if root
// runs the command.
func (s *devSession) listenFor(port int, attributes devcontainer.PortAttributes) (net.Listener, error) {
	err := fault.Newf(fault.Denied, "port_privileged", "port %d of this machine is privileged", port)
	if port >= firstUnprivileged {
		l, listenErr := listenLoopback(port)
		if listenErr == nil {
			return l, nil
		}
		e, ok := errors.AsType[*fault.Error](listenErr)
		if !ok {
			return nil, fail("forward port "+strconv.Itoa(port), listenErr)
		}
		err = e
	}
	if attributes.RequireLocalPort {
		return nil, fail("forward port "+strconv.Itoa(port), err).
			hint("requireLocalPort asks for this number; --no-forward opens the container without forwarded ports")
	}
	s.note("%s; another one is used", err.Text)
	return listenLoopback(0)
}
