package sshserver

import (
	"context"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/crannog/crannog/internal/host/text"
)

// Bounds of the variables that a client may set for a command.
const (
	maxVariables = 128
	maxVariable  = 32 << 10 // bytes of one
)

// session is a channel on which one command runs.
type session struct {
	connection *connection
	channel    ssh.Channel
	command    Command
	process    Process
	ended      chan Exit // of the command, once it has started
}

// session serves a session channel.
func (c *connection) session(ctx context.Context, opened ssh.NewChannel) {
	channel, requests, err := opened.Accept()
	if err != nil {
		return // the client has left
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer channel.Close()
	s := &session{connection: c, channel: channel, ended: make(chan Exit, 1)}
	for {
		select {
		case r, open := <-requests:
			if !open {
				if s.process != nil {
					// The client has closed the channel, which hangs the command up.
					cancel()
					<-s.ended
				}
				return
			}
			ok := s.handle(ctx, r)
			if r.WantReply {
				_ = r.Reply(ok, nil) // fails if the client has left
			}
		case exit := <-s.ended:
			s.report(exit)
			return
		}
	}
}

// handle handles a request and reports whether it succeeded.
func (s *session) handle(ctx context.Context, r *ssh.Request) bool {
	switch r.Type {
	case "env":
		return s.setVariable(r.Payload)
	case "pty-req":
		return s.setTerminal(r.Payload)
	case "window-change":
		return s.resize(r.Payload)
	case "signal":
		return s.signal(r.Payload)
	case "shell":
		return s.start(ctx, Command{Kind: Shell})
	case "exec":
		var m struct{ Line string }
		return ssh.Unmarshal(r.Payload, &m) == nil && s.start(ctx, Command{Kind: Exec, Line: m.Line})
	case "subsystem":
		var m struct{ Name string }
		return ssh.Unmarshal(r.Payload, &m) == nil && m.Name == "sftp" && s.start(ctx, Command{Kind: SFTP})
	case "auth-agent-req@openssh.com":
		s.connection.refuse("agent forwarding (ssh -A)", reasonAgent)
	case "x11-req":
		s.connection.refuse("X11 forwarding (ssh -X)", reasonX11)
	}
	return false
}

func (s *session) setVariable(payload []byte) bool {
	var m struct{ Name, Value string }
	if ssh.Unmarshal(payload, &m) != nil || s.process != nil || len(s.command.Env) >= maxVariables {
		return false
	}
	if m.Name == "" || len(m.Name)+len(m.Value) > maxVariable || strings.ContainsAny(m.Name, "=\x00") || strings.ContainsRune(m.Value, 0) {
		return false
	}
	s.command.Env = append(s.command.Env, m.Name+"="+m.Value)
	return true
}

func (s *session) setTerminal(payload []byte) bool {
	var m struct {
		Term                      string
		Cols, Rows, Width, Height uint32
		Modes                     string
	}
	if ssh.Unmarshal(payload, &m) != nil || s.process != nil || s.command.TTY != nil || len(m.Term) > 256 || strings.ContainsRune(m.Term, 0) {
		return false
	}
	size := sizeOf(m.Cols, m.Rows)
	s.command.TTY = &size
	if m.Term != "" {
		s.command.Env = append(s.command.Env, "TERM="+m.Term)
	}
	return true
}

// sizeOf bounds a size. A client without a terminal sends zeros.
func sizeOf(cols, rows uint32) Size {
	if cols == 0 || rows == 0 {
		return Size{Cols: 80, Rows: 24}
	}
	return Size{Cols: uint16(min(cols, 1<<15)), Rows: uint16(min(rows, 1<<15))}
}

func (s *session) resize(payload []byte) bool {
	var m struct{ Cols, Rows, Width, Height uint32 }
	if ssh.Unmarshal(payload, &m) != nil || s.process == nil || s.command.TTY == nil {
		return false
	}
	return s.process.Resize(sizeOf(m.Cols, m.Rows)) == nil
}

func (s *session) signal(payload []byte) bool {
	var m struct{ Name string }
	if ssh.Unmarshal(payload, &m) != nil || s.process == nil {
		return false
	}
	sig, known := signals[m.Name]
	return known && s.process.Signal(sig) == nil
}

// start starts the session's command. A session runs one.
func (s *session) start(ctx context.Context, c Command) bool {
	if s.process != nil {
		return false
	}
	c.Env, c.TTY = s.command.Env, s.command.TTY
	if c.Kind == SFTP {
		c.TTY = nil // a terminal would change the protocol's bytes
	}
	c.Stdin, c.Stdout, c.Stderr = s.channel, s.channel, s.channel.Stderr()
	s.command = c
	process, err := s.connection.server.Sandbox.Start(ctx, c)
	if err != nil {
		// The client shows this, and then learns that nothing ran.
		s.complain(err)
		s.process = ended{}
		s.ended <- Exit{Code: 255}
		return true
	}
	s.process = process
	go func() {
		exit, err := process.Wait()
		if err != nil && ctx.Err() == nil {
			s.complain(err)
			exit = Exit{Code: 255}
		}
		s.ended <- exit
	}()
	return true
}

// ended is the process of a command that could not be started.
type ended struct{}

func (ended) Wait() (Exit, error)         { return Exit{Code: 255}, nil }
func (ended) Signal(syscall.Signal) error { return syscall.ESRCH }
func (ended) Resize(Size) error           { return syscall.ESRCH }

// complain writes an error to the client's standard error. It may contain text of the sandbox,
// which must not control the client's terminal.
func (s *session) complain(err error) {
	_, _ = fmt.Fprintf(s.channel.Stderr(), "crannog: %s\r\n", text.Line(err.Error(), 1000)) // fails if the client has left
}

// report sends how the command ended. Sending fails if the client has left.
func (s *session) report(exit Exit) {
	if name := nameOf(exit.Signal); name != "" {
		m := struct {
			Name          string
			Core          bool
			Message, Lang string
		}{Name: name}
		_, _ = s.channel.SendRequest("exit-signal", false, ssh.Marshal(&m))
	} else {
		m := struct{ Code uint32 }{uint32(exit.Code)}
		_, _ = s.channel.SendRequest("exit-status", false, ssh.Marshal(&m))
	}
}

// signals are the signals of RFC 4254 by name.
var signals = map[string]syscall.Signal{
	"ABRT": syscall.SIGABRT, "ALRM": syscall.SIGALRM, "FPE": syscall.SIGFPE, "HUP": syscall.SIGHUP, "ILL": syscall.SIGILL,
	"INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "PIPE": syscall.SIGPIPE, "QUIT": syscall.SIGQUIT, "SEGV": syscall.SIGSEGV,
	"TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
}

// nameOf returns the name of a signal, or "" for zero and for signals without a name.
func nameOf(sig syscall.Signal) string {
	for name, s := range signals {
		if s == sig {
			return name
		}
	}
	return ""
}
