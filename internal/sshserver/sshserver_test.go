package sshserver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/crannog/crannog/internal/sshserver"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// Only the configured user with one of the keys gets in, and there is no other method.
func TestOnlyConfiguredKeysConnect(t *testing.T) {
	b := newFixture(t)
	for name, methods := range map[string][]ssh.AuthMethod{
		"no method":    nil,
		"another key":  {ssh.PublicKeys(newKey(t))},
		"a password":   {ssh.Password("secret")},
		"an interview": {ssh.KeyboardInteractive(func(string, string, []string, []bool) ([]string, error) { return nil, nil })},
	} {
		if c, err := b.dial("dev", methods...); err == nil {
			t.Errorf("%s: connected", name)
			c.Close()
		}
	}
	if c, err := b.dial("root", ssh.PublicKeys(b.key)); err == nil {
		t.Error("another user connected")
		c.Close()
	}
	if !b.noted("an SSH client was refused") {
		t.Error("the refusals were not reported")
	}
	if len(b.commands()) != 0 {
		t.Errorf("commands ran: %v", b.commands())
	}
	c, err := b.dial("dev", ssh.PublicKeys(newKey(t), b.key))
	if err != nil {
		t.Fatalf("a client with several keys: %v", err)
	}
	c.Close()
	if _, err := sshserver.New(sshserver.Config{}); err == nil {
		t.Error("a server without keys exists")
	}
}

func TestExec(t *testing.T) {
	b := newFixture(t)
	c := b.client(t)
	s := session(t, c)
	var out, errs bytes.Buffer
	s.Stdin, s.Stdout, s.Stderr = strings.NewReader("words"), &out, &errs
	if err := s.Setenv("LANG", "C"); err != nil {
		t.Error(err)
	}
	if err := s.Setenv("A=B", "C"); err == nil {
		t.Error("an impossible name was accepted")
	}
	err := s.Run("cat; echo $LANG; echo bad >&2; exit 7")
	if exit, ok := errors.AsType[*ssh.ExitError](err); !ok || exit.ExitStatus() != 7 || out.String() != "wordsC\n" || errs.String() != "bad\n" {
		t.Errorf("Run: got %v, output %q, errors %q, want exit code 7", err, out.String(), errs.String())
	}
	err = session(t, c).Run("kill -TERM $$")
	if exit, ok := errors.AsType[*ssh.ExitError](err); !ok || exit.Signal() != "TERM" {
		t.Errorf("Run of a command that a signal ends: got %v, want TERM", err)
	}
	if err := session(t, c).Run("true"); err != nil {
		t.Error(err)
	}
}

func TestSignal(t *testing.T) {
	s := session(t, newFixture(t).client(t))
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("trap 'exit 9' USR1; echo up; while :; do sleep 0.01; done"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(ssh.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if exit, ok := errors.AsType[*ssh.ExitError](s.Wait()); !ok || exit.ExitStatus() != 9 {
		t.Errorf("Wait after the signal: got %v, want exit code 9", exit)
	}
}

func TestTerminal(t *testing.T) {
	b := newFixture(t)
	s := session(t, b.client(t))
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RequestPty("xterm", 37, 91, ssh.TerminalModes{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Shell(); err != nil {
		t.Fatal(err)
	}
	line := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(out, got); err != nil || string(got) != want {
			t.Fatalf("line of the terminal: got %q, error %v, want %q", got, err, want)
		}
	}
	line("91x37 TERM=xterm\n")
	if err := s.WindowChange(40, 120); err != nil {
		t.Fatal(err)
	}
	line("120x40 TERM=xterm\n")
	if ok, err := s.SendRequest("shell", true, nil); ok || err != nil {
		t.Errorf("second command on a channel: got %v, error %v, want a refusal", ok, err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
}

// Whichever way a client leaves, its command is hung up.
func TestHangup(t *testing.T) {
	// If these tests run under nohup, commands would inherit that SIGHUP is ignored. A signal with a
	// handler is reset when a program starts.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP)
	defer signal.Stop(handled)
	b := newFixture(t)
	for i, leave := range []func(*ssh.Client, *ssh.Session) error{
		func(_ *ssh.Client, s *ssh.Session) error { return s.Close() },
		func(c *ssh.Client, _ *ssh.Session) error { return c.Close() },
		func(*ssh.Client, *ssh.Session) error { b.end(); return nil },
	} {
		c := b.client(t)
		s := session(t, c)
		out, err := s.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start("echo up; sleep 1000"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		if err := leave(c, s); err != nil {
			t.Fatal(err)
		}
		hosttest.Eventually(t, "the command is hung up", func() bool { return b.hangups() == i+1 })
	}
}

func TestForbiddenRequestsAreRefused(t *testing.T) {
	b := newFixture(t)
	c := b.client(t)
	if _, err := c.Listen("tcp", "127.0.0.1:0"); err == nil || !b.noted("remote forwarding (ssh -R) was refused") {
		t.Errorf("remote forwarding: got %v, want a refusal", err)
	}
	for _, host := range []string{"example.com:80", "169.254.169.254:80", "0.0.0.0:80", "127.0.0.2:80", "localhost.:80", "[::]:80", ":80"} {
		if _, err := c.Dial("tcp", host); err == nil || !strings.Contains(err.Error(), "only ports of the sandbox itself") {
			t.Errorf("forwarding to %s: got %v, want a refusal", host, err)
		}
	}
	if _, err := c.Dial("unix", "/run/docker.sock"); err == nil || !strings.Contains(err.Error(), "only TCP ports") {
		t.Errorf("forwarding to a Unix socket: got %v, want a refusal", err)
	}
	if _, _, err := c.OpenChannel("x11", nil); err == nil {
		t.Error("an unknown channel was opened")
	}
	s := session(t, c)
	for name, note := range map[string]string{"auth-agent-req@openssh.com": "agent forwarding (ssh -A) was refused", "x11-req": "X11 forwarding (ssh -X) was refused"} {
		if ok, err := s.SendRequest(name, true, nil); ok || err != nil || !b.noted(note) {
			t.Errorf("%s: got %v, error %v, want a refusal", name, ok, err)
		}
	}
	if err := s.RequestSubsystem("netconf"); err == nil {
		t.Error("an unknown subsystem runs")
	}
	if len(b.commands()) != 0 {
		t.Errorf("commands ran: %v", b.commands())
	}
}

// An error of the sandbox reaches the client without its control characters.
func TestStartErrorIsCleaned(t *testing.T) {
	b := newFixture(t)
	b.broken = errors.New("the sandbox has ended \x1b]0;title\a")
	s := session(t, b.client(t))
	var errs bytes.Buffer
	s.Stderr = &errs
	exit, ok := errors.AsType[*ssh.ExitError](s.Run("true"))
	if !ok || exit.ExitStatus() != 255 || !strings.Contains(errs.String(), "crannog: the sandbox has ended") || strings.ContainsAny(errs.String(), "\x1b\a") {
		t.Errorf("Run: got %v, errors %q, want exit code 255 and no control characters", exit, errs.String())
	}
}

func TestChannelsAreBounded(t *testing.T) {
	c := newFixture(t).client(t)
	var opened int
	for ; opened < 100; opened++ {
		if _, err := c.NewSession(); err != nil {
			if !strings.Contains(err.Error(), "too many channels") {
				t.Error(err)
			}
			break
		}
	}
	if opened != 64 {
		t.Errorf("%d channels were opened, want 64", opened)
	}
}

func TestFileTransfer(t *testing.T) {
	b := newFixture(t)
	c, err := sftp.NewClient(b.client(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := c.Create("made")
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if _, err := f.ReadFrom(bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Chmod(0o640), f.Close()); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(b.home, "made"))
	info, statErr := os.Stat(filepath.Join(b.home, "made"))
	if err := errors.Join(err, statErr); err != nil || !bytes.Equal(written, data) || info.Mode() != 0o640 {
		t.Fatalf("the uploaded file: got %d bytes, %v, error %v, want %d bytes with mode 0640", len(written), info, err, len(data))
	}
	if f, err = c.Open("made"); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if read, err := io.ReadAll(f); err != nil || !bytes.Equal(read, data) {
		t.Errorf("download: got %d bytes, error %v, want %d equal bytes", len(read), err, len(data))
	}
}

func TestForwarding(t *testing.T) {
	b := newFixture(t)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := server.Addr().(*net.TCPAddr).Port
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				data, _ := io.ReadAll(conn) // until the client's half is closed
				_, _ = conn.Write(bytes.ToUpper(data))
			}()
		}
	}()
	exchange := func(t *testing.T, conn net.Conn, want string) {
		t.Helper()
		defer conn.Close()
		if _, err := io.WriteString(conn, strings.ToLower(want)); err != nil {
			t.Fatal(err)
		}
		if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); string(got) != want {
			t.Errorf("answer through the forwarded port: got %.60q, error %v, want %.60q", got, err, want)
		}
	}
	c := b.client(t)
	for _, host := range []string{"localhost", "127.0.0.1", "::1"} {
		conn, err := c.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			t.Fatalf("forwarding to %s: %v", host, err)
		}
		exchange(t, conn, strings.Repeat("WORDS", 1<<16))
	}

	// The same without SSH.
	local, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	forwarded, failed := make(chan error, 1), make(chan error, 1)
	go func() {
		forwarded <- sshserver.Forward(ctx, b.fake, local, port, func(err error) { failed <- err })
	}()
	conn, err := net.Dial("tcp", local.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, conn, "LOCAL")
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if conn, err = net.Dial("tcp", local.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); len(got) != 0 {
		t.Errorf("a closed port sent %q, %v", got, err)
	}
	if err := <-failed; !errors.Is(err, sshserver.ErrPortClosed) {
		t.Errorf("Forward to a closed port: got %v, want ErrPortClosed", err)
	}
	cancel()
	if err := <-forwarded; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", local.Addr().String()); err == nil {
		t.Error("the port is still open")
	}
}

func TestHostKeyIsStored(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	first, err := sshserver.HostKey(file)
	if err != nil {
		t.Fatal(err)
	}
	second, err := sshserver.HostKey(file)
	if err != nil || !bytes.Equal(first.PublicKey().Marshal(), second.PublicKey().Marshal()) {
		t.Errorf("second HostKey: got another key or error %v", err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("Stat of the key: got %v, error %v, want mode 0600", info, err)
	}
	if err := os.WriteFile(file, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sshserver.HostKey(file); err == nil {
		t.Error("a damaged key was accepted or replaced")
	}
}

func TestPublicKeys(t *testing.T) {
	one, two := string(ssh.MarshalAuthorizedKey(newKey(t).PublicKey())), string(ssh.MarshalAuthorizedKey(newKey(t).PublicKey()))
	keys, err := sshserver.PublicKeys(strings.NewReader("# a comment\n" + one + "\n" + two))
	if err != nil || len(keys) != 2 || string(ssh.MarshalAuthorizedKey(keys[1])) != two {
		t.Errorf("PublicKeys: got %d keys, error %v, want 2", len(keys), err)
	}
	for _, bad := range []string{"", "# nothing\n", "restrict " + one, "-----BEGIN OPENSSH PRIVATE KEY-----\n", strings.Repeat(one, 1<<13)} {
		if keys, err := sshserver.PublicKeys(strings.NewReader(bad)); err == nil {
			t.Errorf("PublicKeys(%.40q): got %d keys, want an error", bad, len(keys))
		}
	}
}
