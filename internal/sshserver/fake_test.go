package sshserver_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/crannog/crannog/internal/guest/connect"
	"github.com/crannog/crannog/internal/guest/sftpserver"
	"github.com/crannog/crannog/internal/sshserver"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// fake is a sandbox whose commands run on the host, and whose SFTP and connections are the guest's
// own programs in this process.
type fake struct {
	home string

	mu      sync.Mutex
	started []sshserver.Command
	hungUp  int
	broken  error // of Start
}

func (f *fake) commands() []sshserver.Command {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]sshserver.Command{}, f.started...)
}

func (f *fake) hangups() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hungUp
}

func (f *fake) Start(ctx context.Context, c sshserver.Command) (sshserver.Process, error) {
	f.mu.Lock()
	f.started = append(f.started, c)
	f.mu.Unlock()
	switch {
	case f.broken != nil:
		return nil, f.broken
	case c.Kind == sshserver.SFTP:
		return f.inside(ctx, c, func(in io.Reader) int {
			return sftpserver.Main([]string{f.home}, in, output{c.Stdout}, c.Stderr)
		}), nil
	case c.Kind == sshserver.Connect:
		return f.inside(ctx, c, func(in io.Reader) int {
			return connect.Main(connect.Args(c.Port)[1:], in, c.Stdout, c.Stderr)
		}), nil
	case c.TTY != nil:
		p := &screen{sizes: make(chan sshserver.Size, 8)}
		p.task = f.inside(ctx, c, p.draw(c))
		return p, nil
	}
	cmd := exec.Command("/bin/sh", "-c", c.Line)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.Env, f.home, c.Stdout, c.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_, _ = io.Copy(in, c.Stdin) // the program may not read it
		_ = in.Close()
	}()
	stop := context.AfterFunc(ctx, func() {
		f.mu.Lock()
		f.hungUp++
		f.mu.Unlock()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGHUP) // it may have ended
	})
	return &program{cmd, stop}, nil
}

// program is a command on the host.
type program struct {
	cmd  *exec.Cmd
	stop func() bool
}

func (p *program) Wait() (sshserver.Exit, error) {
	defer p.stop()
	err := p.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status, _ := exit.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			return sshserver.Exit{Code: 128 + int(status.Signal()), Signal: status.Signal()}, nil
		}
		return sshserver.Exit{Code: status.ExitStatus()}, nil
	}
	return sshserver.Exit{}, err
}

func (p *program) Signal(sig syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, sig) }
func (p *program) Resize(sshserver.Size) error     { return errors.New("no terminal") }

// task is a function that runs as a command.
type task struct{ done chan int }

// inside runs a function whose input ends when ctx ends.
func (f *fake) inside(ctx context.Context, c sshserver.Command, run func(in io.Reader) int) *task {
	in, feed := io.Pipe()
	context.AfterFunc(ctx, func() { _ = feed.Close() })
	go func() {
		_, _ = io.Copy(feed, c.Stdin) // ends with the function's input
		_ = feed.Close()
	}()
	t := &task{make(chan int, 1)}
	go func() {
		code := run(in)
		_ = in.Close()
		t.done <- code
	}()
	return t
}

func (t *task) Wait() (sshserver.Exit, error) { return sshserver.Exit{Code: <-t.done}, nil }
func (t *task) Signal(syscall.Signal) error   { return syscall.ESRCH }
func (t *task) Resize(sshserver.Size) error   { return errors.New("no terminal") }

// screen prints the sizes of its terminal and ends with its input.
type screen struct {
	*task
	sizes chan sshserver.Size
}

func (s *screen) draw(c sshserver.Command) func(io.Reader) int {
	return func(in io.Reader) int {
		s.sizes <- *c.TTY
		go func() {
			for size := range s.sizes {
				fmt.Fprintf(c.Stdout, "%dx%d %s\n", size.Cols, size.Rows, strings.Join(c.Env, " "))
			}
		}()
		_, _ = io.Copy(io.Discard, in)
		return 0
	}
}

func (s *screen) Resize(size sshserver.Size) error { s.sizes <- size; return nil }

type output struct{ io.Writer }

func (output) Close() error { return nil }

// fixture is a server for a fake sandbox, with the keys that a client needs.
type fixture struct {
	*fake
	address string
	key     ssh.Signer // an accepted one
	host    ssh.PublicKey
	end     func()

	mu    sync.Mutex
	notes []string
}

func newKey(t testing.TB) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	hostKey, err := sshserver.HostKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	b := &fixture{fake: &fake{home: t.TempDir()}, key: newKey(t), host: hostKey.PublicKey()}
	server, err := sshserver.New(sshserver.Config{
		Sandbox: b.fake, HostKey: hostKey, User: "dev", Keys: []ssh.PublicKey{newKey(t).PublicKey(), b.key.PublicKey()}, Note: b.note,
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	b.end = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-served:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-hosttest.Late():
			t.Error("Serve does not return")
		}
	})
	t.Cleanup(b.end)
	return b
}

func (b *fixture) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
}

func (b *fixture) noted(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(strings.Join(b.notes, "\n"), text)
}

// dial logs in, by default as the right user with the right key.
func (b *fixture) dial(user string, methods ...ssh.AuthMethod) (*ssh.Client, error) {
	return ssh.Dial("tcp", b.address, &ssh.ClientConfig{User: user, Auth: methods, HostKeyCallback: ssh.FixedHostKey(b.host)})
}

func (b *fixture) client(t testing.TB) *ssh.Client {
	t.Helper()
	c, err := b.dial("dev", ssh.PublicKeys(b.key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the server may have closed it
	return c
}

func session(t testing.TB, c *ssh.Client) *ssh.Session {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // it may have ended
	return s
}
