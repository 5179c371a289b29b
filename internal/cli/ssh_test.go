package cli

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/devcontainer"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

const onePublicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE3a6Xo0PNjcJVDeA3Kmn9UY9JTnZrTPs8FRdL/xI7kA me@here\n"

// No path can add a setting to OpenSSH's configuration.
func TestSSHConfigIsOneHost(t *testing.T) {
	h := sshHost{alias: "crannog-a", port: 2222, user: "dev", knownHosts: "/state 100%/known", identities: []string{"/home/me/.ssh/id"}}
	block, err := h.block()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Host crannog-a\n", "  Port 2222\n", `  UserKnownHostsFile "/state 100%%/known"` + "\n", `  IdentityFile "/home/me/.ssh/id"` + "\n", "  StrictHostKeyChecking yes\n", "  ForwardAgent no\n"} {
		if !strings.Contains(block, want) {
			t.Errorf("%q is not in %s", want, block)
		}
	}
	for _, path := range []string{"/a\nProxyCommand sh", `/a"`, "/a\\", "/a\x1b[2J"} {
		h.knownHosts = path
		if block, err := h.block(); err == nil {
			t.Errorf("%q was written: %s", path, block)
		}
	}
	for name, want := range map[string]string{"My App": "crannog-my-app", "a\nProxyCommand": "crannog-a-proxycommand", "*": "crannog--", strings.Repeat("x", 100): "crannog-" + strings.Repeat("x", 63)} {
		if got := sshAlias(name); got != want {
			t.Errorf("sshAlias(%q): got %q, want %q", name, got, want)
		}
	}
	for name, ok := range map[string]bool{"vscode": true, "www-data": true, "root\n  ProxyCommand sh": false, "a b": false, "": false, "-x": false} {
		if sshUser.MatchString(name) != ok {
			t.Errorf("sshUser matches %q: %v, want %v", name, !ok, ok)
		}
	}
}

// The user's own configuration is not replaced, even behind a link.
func TestSSHConfigReplacesOnlyItsOwn(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "made")
	for _, text := range []string{sshConfigMark + "\none", sshConfigMark + "\ntwo"} {
		if err := writeSSHConfig(file, text); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("writeSSHConfig: the file has %q, error %v, want %q", got, err, text)
		}
	}
	own, link := filepath.Join(dir, "config"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(own, []byte("Host *\n"), 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{own, link, dir} {
		if err := writeSSHConfig(path, sshConfigMark); fault.KindOf(err) != fault.Exists {
			t.Errorf("writeSSHConfig(%s): error %v, want one of the kind Exists", path, err)
		}
	}
}

// sshApp is an invocation of a user with a home.
func sshApp(t *testing.T) (*app, string, *bytes.Buffer) {
	t.Helper()
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	var notes bytes.Buffer
	a := newApp(Env{Vars: []string{"HOME=" + home}, Stdout: io.Discard, Stderr: &notes})
	a.config = config.Config{State: filepath.Join(home, "state")}
	return a, home, &notes
}

func TestClientKeys(t *testing.T) {
	a, home, notes := sshApp(t)
	if _, err := a.clientKeys(nil); err == nil || !strings.Contains(viewOf(err).Hint, "ssh-keygen") {
		t.Errorf("without a key: %v", err)
	}
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(home, ".ssh", name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	public, private := write("id_ed25519.pub", onePublicKey), write("id_ed25519", "private")
	write("broken.pub", "no key")
	keys, err := a.clientKeys(nil)
	if err != nil || len(keys.public) != 1 || len(keys.identities) != 1 || keys.identities[0] != private {
		t.Errorf("clientKeys: got %v, error %v", keys, err)
	}
	if !strings.Contains(notes.String(), "broken.pub") {
		t.Errorf("the broken file is not named: %q", notes)
	}
	if keys, err := a.clientKeys([]string{public}); err != nil || len(keys.public) != 1 {
		t.Errorf("clientKeys: got %v, error %v", keys, err)
	}
	for _, file := range []string{private, filepath.Join(home, "none")} {
		if keys, err := a.clientKeys([]string{file}); err == nil {
			t.Errorf("clientKeys(%s): got %v, want an error", file, keys)
		}
	}
}

// The keys of a real SSH agent are read.
func TestClientKeysOfAnAgent(t *testing.T) {
	a, home, _ := sshApp(t)
	hosttest.Need(t, hosttest.Program("ssh-agent"), hosttest.Program("ssh-add"), hosttest.Program("ssh-keygen"))
	socket, key := filepath.Join(home, "agent"), filepath.Join(home, "key")
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	agent := exec.CommandContext(t.Context(), "ssh-agent", "-D", "-a", socket)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = agent.Process.Kill() // it may have ended
		_ = agent.Wait()
	})
	hosttest.Eventually(t, "the agent listens", func() bool { _, err := os.Stat(socket); return err == nil })
	run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	run("ssh-add", "-q", key)
	a.vars = append(a.vars, "SSH_AUTH_SOCK="+socket)
	keys, err := a.clientKeys(nil)
	if err != nil || len(keys.public) != 1 || len(keys.identities) != 0 {
		t.Errorf("clientKeys: got %v, error %v", keys, err)
	}
}

// The endpoint has the same port the next time, unless it is taken.
func TestSSHPortIsKept(t *testing.T) {
	a, _, _ := sshApp(t)
	e := &sshEndpoint{app: a, flags: &sshFlags{}, id: "one"}
	listen := func() (net.Listener, int) {
		t.Helper()
		l, err := e.listen()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() }) // it may be closed
		return l, portOf(l)
	}
	l, first := listen()
	if _, other := listen(); other == first {
		t.Error("two endpoints have one port")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	e.flags.port = first
	l, again := listen()
	if again != first {
		t.Errorf("port %d instead of %d", again, first)
	}
	if _, err := e.listen(); fault.CodeOf(errors.Unwrap(err)) != "port_in_use" {
		t.Errorf("a port that is taken: %v", err)
	}
	if host, _, err := net.SplitHostPort(l.Addr().String()); err != nil || host != "127.0.0.1" {
		t.Errorf("it listens at %v", l.Addr())
	}
}

// A taken or privileged port is replaced and named, unless the file insists on its number.
func TestPortsOfAContainer(t *testing.T) {
	a, _, notes := sshApp(t)
	s := &devSession{devVerbs: devVerbs{a}, flags: &devFlags{}}
	taken, err := listenLoopback(0)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for port, want := range map[int]string{portOf(taken): "is in use; another one is used", 80: "is privileged; another one is used"} {
		notes.Reset()
		l, err := s.listenFor(port, devcontainer.PortAttributes{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if portOf(l) == port || !strings.Contains(notes.String(), want) {
			t.Errorf("port %d became %d: %q", port, portOf(l), notes)
		}
		if _, err := s.listenFor(port, devcontainer.PortAttributes{RequireLocalPort: true}); err == nil {
			t.Errorf("port %d is required and was replaced", port)
		}
	}
}
