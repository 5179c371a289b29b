package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/lineage"
	"github.com/crannog/crannog/internal/guest/modules"
	"github.com/crannog/crannog/internal/guest/spawn"
	"github.com/crannog/crannog/internal/guest/utf8text"
)

// stdio has the standard streams of a process: the child's descriptors, which are closed once it
// runs, and the guest's ends.
type stdio struct {
	child  []int // stdin, stdout, stderr; all the same if there is a terminal
	input  *input
	tty    *terminal
	output []*os.File // one for a terminal, else stdout and stderr
}

// launch starts the requested process and returns it with a first listener, which gets all output.
// A delay of zero means none.
func (s *Service) launch(ctx context.Context, u identity.User, req *pb.StartRequest, delay time.Duration) (*process, *listener, error) {
	config := req.GetProcess()
	if config.GetCmd() == "" {
		return nil, nil, connect.NewError(connect.CodeInvalidArgument, errors.New("cmd is missing"))
	}
	dir, err := u.Resolve(config.GetCwd(), s.cfg().DefaultDir)
	if err != nil {
		return nil, nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	env, err := s.environ(u, config.GetEnvs())
	if err != nil {
		return nil, nil, err
	}
	start, err := s.program(ctx, u, config, env["PATH"], dir)
	if err != nil {
		return nil, nil, err
	}
	defer start.Close()
	if s.cfg().Modules != nil && req.Pty != nil {
		return nil, nil, connect.NewError(connect.CodeUnimplemented, modules.ErrTerminal)
	}
	std, err := s.connect(u, req)
	if err != nil {
		_, text := commandError(config.GetCmd(), err)
		code := connect.CodeInternal
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOSPC) {
			code = connect.CodeResourceExhausted
		}
		return nil, nil, connect.NewError(code, errors.New(text))
	}
	p := &process{
		tag: req.Tag, config: validConfig(config), mark: lineage.New(), delay: delay, startedAt: time.Now(), done: make(chan struct{}),
		input: std.input, tty: std.tty, pipes: std.output,
	}
	exit, err := s.fork(p, u, std, start, dir, formatEnv(env))
	if err != nil {
		std.closeAll()
		return nil, nil, s.startError(u, config.GetCmd(), dir, err)
	}
	first, err := s.track(ctx, p, exit)
	return p, first, err
}

// validConfig returns a command as List shows it, with text that is valid UTF-8.
func validConfig(config *pb.ProcessConfig) *pb.ProcessConfig {
	c := &pb.ProcessConfig{Cmd: utf8text.Valid(config.GetCmd())}
	for _, a := range config.GetArgs() {
		c.Args = append(c.Args, utf8text.Valid(a))
	}
	if config.GetEnvs() != nil {
		c.Envs = make(map[string]string, len(config.GetEnvs()))
	}
	for name, value := range config.GetEnvs() {
		c.Envs[utf8text.Valid(name)] = utf8text.Valid(value)
	}
	if config.Cwd != nil {
		dir := utf8text.Valid(config.GetCwd())
		c.Cwd = &dir
	}
	return c
}

// fork starts the program and sets p.pid. It always closes the child's descriptors.
func (s *Service) fork(p *process, u identity.User, std *stdio, start *modules.Start, dir string, env []string) (<-chan syscall.WaitStatus, error) {
	attr := &syscall.ProcAttr{Dir: dir, Env: env, Sys: s.cfg().Actor.Attr(u)}
	for _, fd := range std.child {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	for _, f := range start.Files {
		attr.Files = append(attr.Files, f.Fd())
	}
	if std.tty != nil {
		attr.Sys.Setctty = true // Ctty is the child's descriptor 0
	}
	pid, exit, err := s.cfg().Reaper.Start(func() (int, error) { return spawn.ForkExec(start.Path, start.Argv, attr, p.mark) })
	std.closeChild()
	p.pid = pid
	return exit, err
}

// track adds the process to the list, starts its time limit, and starts passing its output to a
// first listener.
func (s *Service) track(ctx context.Context, p *process, exit <-chan syscall.WaitStatus) (*listener, error) {
	added := s.table.add(p)
	s.origins.add(p.mark, originOf(p))
	if deadline, ok := ctx.Deadline(); ok {
		p.limit(time.Until(deadline))
	} else if s.cfg().CommandTimeout > 0 {
		p.limit(s.cfg().CommandTimeout)
	}
	first := p.output.join()
	p.startForwarding()
	go p.watch(exit, s.table.moveToEnded)
	if added {
		return first, nil
	}
	p.kill()
	p.output.leave(first)
	return nil, connect.NewError(connect.CodeUnavailable, errors.New("the sandbox is ending"))
}

// connect creates pipes or a terminal.
func (s *Service) connect(u identity.User, req *pb.StartRequest) (*stdio, error) {
	if req.Pty != nil {
		return s.connectTerminal(u, req.GetPty().GetSize())
	}
	std := &stdio{}
	if err := std.connectPipes(req.Stdin == nil || req.GetStdin()); err != nil {
		std.closeAll()
		return nil, err
	}
	return std, nil
}

func (s *Service) connectTerminal(u identity.User, size *pb.PTY_Size) (*stdio, error) {
	tty, err := openTerminal(size)
	if err != nil {
		return nil, err
	}
	std := &stdio{child: []int{tty.slave, tty.slave, tty.slave}, tty: tty, output: []*os.File{tty.file}, input: newInput(tty.file)}
	if s.cfg().Actor.Switch {
		// Programs open their terminal by name.
		if err := unix.Fchown(tty.slave, int(u.UID), -1); err != nil {
			std.closeAll()
			return nil, fmt.Errorf("hand the terminal to %s: %w", u.Name, err)
		}
	}
	return std, nil
}

func (std *stdio) connectPipes(stdin bool) error {
	if err := std.connectStdin(stdin); err != nil {
		return err
	}
	for _, name := range []string{"stdout", "stderr"} {
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			return fmt.Errorf("pipe: %w", err)
		}
		std.child = append(std.child, ends[1])
		f, err := guestFile(ends[0], name)
		if err != nil {
			return err
		}
		std.output = append(std.output, f)
	}
	return nil
}

func (std *stdio) connectStdin(wanted bool) error {
	if !wanted {
		null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", os.DevNull, err)
		}
		std.child = append(std.child, null)
		return nil
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	std.child = append(std.child, ends[0])
	f, err := guestFile(ends[1], "stdin")
	if err != nil {
		return err
	}
	std.input = newInput(f)
	return nil
}

// guestFile wraps the guest's end of a pipe in a file that does not block a thread.
func guestFile(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd) // the first error is returned
		return nil, fmt.Errorf("set up %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (std *stdio) closeChild() {
	for _, fd := range std.child {
		if std.tty == nil {
			_ = unix.Close(fd) // nothing was written through it
		}
	}
	std.child = nil
}

// closeAll closes everything after a failed start.
func (std *stdio) closeAll() {
	std.closeChild()
	if std.tty != nil {
		std.tty.release()
	}
	if std.input != nil {
		std.input.close()
	}
	for _, f := range std.output {
		_ = f.Close() // that of a terminal is the input's file, closed above
	}
}
