// Package sshserver owns the SSH endpoint of one sandbox: who may connect, which channels they may
// open, and how each becomes a command in the sandbox. It serves on the caller's machine.
// Everything that a client does runs as a command through the Sandbox interface, so it is recorded
// and bounded like any other command, and no data of the sandbox is parsed here.
package sshserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// Size is the size of a terminal, in characters.
type Size struct{ Cols, Rows uint16 }

// Kind is how a client asked for a command.
type Kind int

// The kinds of commands.
const (
	Shell   Kind = iota // the user's login shell
	Exec                // a line for the shell
	SFTP                // the SFTP server
	Connect             // a connection to a port of the sandbox's loopback interface
)

// Command is a command that a client asks for.
type Command struct {
	Kind Kind
	Line string // of Exec
	Port int    // of Connect
	Env  []string
	TTY  *Size // nil is no terminal
	// Stdin ends with the client's input, and has an error if the client's connection ended.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Exit is how a command ended.
type Exit struct {
	Code   int
	Signal syscall.Signal // zero unless a signal ended it
}

// Process is a running command. Its methods may be called concurrently.
type Process interface {
	// Wait returns when the command has ended and its output was written. An error means that the
	// exit status is not known; the client sees the text of the error.
	Wait() (Exit, error)
	Signal(sig syscall.Signal) error
	Resize(size Size) error
}

// Sandbox starts commands.
type Sandbox interface {
	// Start starts a command. The end of ctx hangs it up.
	Start(ctx context.Context, c Command) (Process, error)
}

// Config configures a Server. All fields are required.
type Config struct {
	Sandbox Sandbox
	HostKey ssh.Signer
	// User is the only user name that clients may use.
	User string
	// Keys are the public keys of which a client must have one.
	Keys []ssh.PublicKey
	// Note reports what the person at the endpoint should know. It may be called concurrently.
	Note func(format string, args ...any)
}

// Limits. Only the person who holds a key gets past the first two, so the others are bounds of
// memory and processes, not of an attacker.
const (
	maxConnections = 32
	handshakeTime  = 30 * time.Second
	maxChannels    = 64 // of a connection
	maxAuthTries   = 20 // an agent offers all its keys
)

// Server serves SSH clients.
type Server struct {
	Config
	ssh *ssh.ServerConfig
}

// errNoKeys is returned by New without keys, because no client could connect.
var errNoKeys = errors.New("there is no public key of a client")

// New returns a server.
func New(c Config) (*Server, error) {
	if len(c.Keys) == 0 {
		return nil, errNoKeys
	}
	s := &Server{Config: c}
	s.ssh = &ssh.ServerConfig{
		// Public keys are the only method, so there is nothing to guess.
		PublicKeyCallback: s.authenticate,
		MaxAuthTries:      maxAuthTries,
		ServerVersion:     "SSH-2.0-Crannog",
	}
	s.ssh.AddHostKey(c.HostKey)
	return s, nil
}

var errDenied = errors.New("the user name or the key is not accepted")

// authenticate accepts the user with one of the keys.
func (s *Server) authenticate(conn ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	if _, isCertificate := key.(*ssh.Certificate); isCertificate || conn.User() != s.User {
		return nil, errDenied
	}
	offered := key.Marshal()
	if !slices.ContainsFunc(s.Keys, func(k ssh.PublicKey) bool { return bytes.Equal(k.Marshal(), offered) }) {
		return nil, errDenied
	}
	return &ssh.Permissions{}, nil
}

// Serve serves the clients of a listener until ctx ends. It then closes the listener and all
// connections, and returns when nothing of them is left.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	return accept(ctx, listener, maxConnections, s.serve)
}

// accept serves connections until ctx ends, at most limit at a time.
func accept(ctx context.Context, listener net.Listener, limit int, serve func(context.Context, net.Conn)) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() }) // Accept then fails
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	defer stop()
	slots := make(chan struct{}, limit)
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		all.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			// Closing the connection ends all that waits for it.
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			defer conn.Close()
			serve(ctx, conn)
		})
	}
}

// serve serves one connection.
func (s *Server) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if conn.SetDeadline(time.Now().Add(handshakeTime)) != nil {
		return
	}
	client, channels, requests, err := ssh.NewServerConn(conn, s.ssh)
	if err != nil {
		if _, denied := errors.AsType[*ssh.ServerAuthError](err); denied && ctx.Err() == nil {
			s.Note("an SSH client was refused: it has no accepted key, or another user name than %s", s.User)
		}
		return
	}
	defer client.Close()
	if conn.SetDeadline(time.Time{}) != nil {
		return
	}
	c := &connection{server: s, slots: make(chan struct{}, maxChannels)}
	c.all.Go(func() { c.refuseGlobal(requests) })
	for channel := range channels {
		c.open(ctx, channel)
	}
	cancel() // the client has left, so its commands are hung up
	c.all.Wait()
}

// connection is one authenticated client.
type connection struct {
	server *Server
	slots  chan struct{}
	all    sync.WaitGroup
	told   sync.Map // names of refused requests that were reported
}

// refuse reports a refused request once.
func (c *connection) refuse(name, reason string) {
	if _, before := c.told.LoadOrStore(name, true); !before {
		c.server.Note("%s was refused: %s", name, reason)
	}
}

// refuseGlobal refuses requests for the whole connection. All are refused, also OpenSSH's
// keep-alive requests, whose sender accepts any answer.
func (c *connection) refuseGlobal(requests <-chan *ssh.Request) {
	for r := range requests {
		if r.Type == "tcpip-forward" || r.Type == "streamlocal-forward@openssh.com" {
			c.refuse("remote forwarding (ssh -R)", reasonRemote)
		}
		if r.WantReply && r.Reply(false, nil) != nil {
			return // the client has left; the loop would end too
		}
	}
}

// Reasons of refusals.
const (
	reasonRemote = "it would let programs in the sandbox reach this machine's network past the egress gateway"
	reasonAgent  = "programs in the sandbox could log in elsewhere with the agent's keys"
	reasonX11    = "programs in the sandbox could read this machine's screen and keyboard"
	reasonHost   = "only ports of the sandbox itself can be reached; other hosts are reached from inside, through the egress gateway"
	reasonUnix   = "only TCP ports of the sandbox can be forwarded"
)

// open accepts or refuses a channel.
func (c *connection) open(ctx context.Context, channel ssh.NewChannel) {
	reject := func(reason ssh.RejectionReason, text string) {
		_ = channel.Reject(reason, text) // fails if the client has left
	}
	select {
	case c.slots <- struct{}{}:
	default:
		reject(ssh.ResourceShortage, "this connection has too many channels")
		return
	}
	serve := func(do func()) {
		c.all.Go(func() {
			defer func() { <-c.slots }()
			do()
		})
	}
	switch channel.ChannelType() {
	case "session":
		serve(func() { c.session(ctx, channel) })
		return
	case "direct-tcpip":
		serve(func() { c.forward(ctx, channel) })
		return
	case "direct-streamlocal@openssh.com":
		reject(ssh.Prohibited, reasonUnix)
	default:
		reject(ssh.UnknownChannelType, "this type of channel is not supported")
	}
	<-c.slots
}
