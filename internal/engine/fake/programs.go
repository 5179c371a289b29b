package fake

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
)

// Programs is a fake whose guest runs a small shell on files in memory. The shell can write and
// read files and count, and be frozen, saved and observed while it runs. A Guest of a test has no
// such programs, so only this engine implements Freezer and Observer.
type Programs struct{ *Engine }

var (
	_ engine.Engine   = (*Programs)(nil)
	_ engine.Freezer  = (*Programs)(nil)
	_ engine.Observer = (*Programs)(nil)
)

// NewPrograms is New for an engine with programs. The options must not have a Guest.
func NewPrograms(o Options) (*Programs, error) {
	if o.Guest != nil {
		return nil, errors.New("fake engine: Guest must be nil for an engine with programs")
	}
	o.programs = true
	e, err := New(o)
	return &Programs{e}, err
}

// Info describes the engine.
func (e *Programs) Info() engine.Info {
	info := e.Engine.Info()
	info.Capabilities = engine.Implemented(e)
	return info
}

// session is a process: a shell with its variables, or a program.
type session struct {
	b           *instance
	ctx         context.Context
	user, cwd   string
	variables   map[string]string
	pid, parent int
	command     int           // PID of the process that the client started
	background  bool          // it holds the locks for a whole iteration of its loop
	nap         time.Duration // how long the loop sleeps after the iteration
	out, err    strings.Builder
}

// uid returns the ID of the session's user.
func (s *session) uid() uint32 {
	if s.user == "root" {
		return 0
	}
	return engine.UserID
}

// errExit ends a shell.
type errExit int

func (e errExit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// processes is the process service of a sandbox with the fake's own programs.
type processes struct {
	processpbconnect.UnimplementedProcessHandler
	b    *instance
	last atomic.Int64 // PID of the last process
}

// handler returns the HTTP handler of the service.
func (p *processes) handler() http.Handler {
	path, handler := processpbconnect.NewProcessHandler(p)
	mux := http.NewServeMux()
	mux.Handle(path, handler)
	return mux
}

// Start runs a command and sends its output once it has ended.
func (p *processes) Start(ctx context.Context, req *connect.Request[processpb.StartRequest], out *connect.ServerStream[processpb.StartResponse]) error {
	argv := append([]string{req.Msg.GetProcess().GetCmd()}, req.Msg.GetProcess().GetArgs()...)
	encoded := strings.TrimPrefix(req.Header().Get("Authorization"), "Basic ")
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return connect.NewError(connect.CodeUnauthenticated, err)
	}
	user, _, _ := strings.Cut(string(decoded), ":")
	pid := int(p.last.Add(1)) + 1
	s := &session{b: p.b, ctx: ctx, user: user, cwd: home(user), variables: map[string]string{}, pid: pid, parent: 1, command: pid}
	code, err := p.run(s, argv)
	if err != nil {
		return connect.NewError(connect.CodeUnimplemented, err)
	}
	stdout := &processpb.ProcessEvent_DataEvent{Output: &processpb.ProcessEvent_DataEvent_Stdout{Stdout: []byte(s.out.String())}}
	stderr := &processpb.ProcessEvent_DataEvent{Output: &processpb.ProcessEvent_DataEvent_Stderr{Stderr: []byte(s.err.String())}}
	for _, event := range []*processpb.ProcessEvent{
		{Event: &processpb.ProcessEvent_Start{Start: &processpb.ProcessEvent_StartEvent{Pid: uint32(pid)}}},
		{Event: &processpb.ProcessEvent_Data{Data: stdout}},
		{Event: &processpb.ProcessEvent_Data{Data: stderr}},
		{Event: &processpb.ProcessEvent_End{End: &processpb.ProcessEvent_EndEvent{
			Exited: true, ExitCode: int32(code), Status: "exit status " + strconv.Itoa(code),
		}}},
	} {
		if err := out.Send(&processpb.StartResponse{Event: event}); err != nil {
			return err
		}
	}
	return nil
}

// home returns the home directory of a user.
func home(user string) string {
	if user == "root" {
		return "/root"
	}
	return "/home/user"
}

// run runs a command and records its events.
func (p *processes) run(s *session, argv []string) (int, error) {
	started := time.Now()
	if err := s.exclusively(func() error { return p.b.began(s, argv) }); err != nil {
		return 0, err
	}
	code, err := p.execute(s, argv)
	if errors.Is(err, errKilled) {
		p.b.stop(engine.Exit{Reason: engine.ReasonKilled, Code: 137, At: time.Now()})
		return 0, err
	}
	return code, errors.Join(err, s.exclusively(func() error { return errors.Join(p.b.ended(s, code, started), p.b.recordChanges()) }))
}

// execute runs a shell command or a program and returns its exit code.
func (p *processes) execute(s *session, argv []string) (int, error) {
	if len(argv) != 3 || argv[0] != "/bin/sh" || argv[1] != "-c" {
		var code int
		err := s.exclusively(func() (err error) { code, err = s.program(argv, nil); return err })
		return code, err
	}
	n, err := parse(argv[2])
	if err != nil {
		return 0, err
	}
	code, err := p.eval(s, n)
	if exit, ok := errors.AsType[errExit](err); ok {
		return int(exit), nil
	}
	return code, err
}

// exclusively calls a function while the sandbox is not frozen and no other command runs.
func (s *session) exclusively(do func() error) error {
	if s.background {
		return do()
	}
	s.b.turn.RLock()
	defer s.b.turn.RUnlock()
	if !s.b.running() {
		return errors.New("the sandbox has ended")
	}
	s.b.one.Lock()
	defer s.b.one.Unlock()
	return do()
}

// eval runs a node of the syntax tree and returns its exit code.
func (p *processes) eval(s *session, n *node) (code int, err error) {
	switch n.op {
	case ";":
		if _, err := p.eval(s, n.left); err != nil {
			return 0, err
		}
		return p.eval(s, n.right)
	case "&&", "||":
		if code, err = p.eval(s, n.left); err != nil || (code == 0) != (n.op == "&&") {
			return code, err
		}
		return p.eval(s, n.right)
	case "!":
		if code, err = p.eval(s, n.left); code == 0 {
			return 1, err
		}
		return 0, err
	case "&":
		if n.left.op != "while" {
			return 0, errSyntax
		}
		return 0, s.exclusively(func() error {
			p.background(loop{n.left.source, maps.Clone(s.variables), s.user, s.cwd}, n.left)
			return nil
		})
	case "while":
		for {
			if code, err = p.eval(s, n.left); err != nil || code != 0 {
				return 0, err
			}
			if _, err = p.eval(s, n.right); err != nil {
				return 0, err
			}
		}
	}
	err = s.exclusively(func() (err error) { code, err = p.runCommand(s, n.words); return err })
	if wait, ok := errors.AsType[errSleep](err); ok {
		if s.background {
			s.nap += time.Duration(wait)
			return 0, nil
		}
		return 0, s.sleep(time.Duration(wait))
	}
	return code, err
}

// errKilled is returned by a command that ends the guest.
var errKilled = errors.New("the guest was killed")

// errSleep is returned by a command that does nothing for a while.
type errSleep time.Duration

func (e errSleep) Error() string { return "sleep " + time.Duration(e).String() }

// sleep waits, at most until the sandbox or the request ends.
func (s *session) sleep(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.b.done:
		return errors.New("the sandbox has ended")
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// absolute returns the key of a file name that a program uses.
func (s *session) absolute(name string) string {
	if !path.IsAbs(name) {
		name = path.Join(s.cwd, name)
	}
	return key(name)
}
