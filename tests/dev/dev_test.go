// Package dev_test opens SSH endpoints of real sandboxes with the real program, and works in them
// with OpenSSH's programs and rsync.
package dev_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// program is the path of the tested program.
var program string

func TestMain(m *testing.M) { os.Exit(servetest.Main(m, &program)) }

// user is a user with a home, a key and a state directory.
type user struct {
	home, state string
	key         string // the private key's file
}

func newUser(t *testing.T) *user {
	t.Helper()
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Bash)
	for _, name := range []string{"ssh", "ssh-keygen", "scp", "sftp", "rsync", "script", "curl"} {
		hosttest.Need(t, hosttest.Program(name))
	}
	home := hosttest.ShortDir(t)
	u := &user{home: home, state: filepath.Join(home, "state"), key: filepath.Join(home, ".ssh", "id_ed25519")}
	if err := os.Mkdir(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	u.must(t, "", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", u.key)
	t.Cleanup(func() { u.end(t) })
	return u
}

// end removes the sandboxes that a failed test left: they would outlive it, with their mounts.
func (u *user) end(t *testing.T) {
	t.Helper()
	ids, err := u.command(context.Background(), program, "--state", u.state, "ls", "-q").Output()
	if err != nil {
		t.Errorf("list the sandboxes: %v", err)
	}
	for id := range strings.FieldsSeq(string(ids)) {
		if out, err := u.command(context.Background(), program, "--state", u.state, "rm", id).CombinedOutput(); err != nil {
			t.Errorf("remove %s: %v: %s", id, err, out)
		}
	}
}

// command returns a command that runs as the user.
func (u *user) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = u.home
	cmd.Env = []string{"HOME=" + u.home, "PATH=/usr/local/bin:/usr/bin:/bin", "TERM=xterm", "LANG=C"}
	return cmd
}

// result is the result of a command.
type result struct {
	out, errs string
	code      int
}

func (u *user) run(t *testing.T, input, name string, args ...string) result {
	t.Helper()
	ctx, cancel := hosttest.Bounded(t)
	defer cancel()
	cmd := u.command(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && (!exited || ctx.Err() != nil) {
		t.Fatalf("%s %q: %v\n%s", name, args, err, errs.String())
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// must runs a command that must succeed, and returns its output.
func (u *user) must(t *testing.T, input, name string, args ...string) string {
	t.Helper()
	r := u.run(t, input, name, args...)
	if r.code != 0 {
		t.Fatalf("%s %q: exit code %d\n%s%s", name, args, r.code, r.out, r.errs)
	}
	return r.out
}

func (u *user) crannog(t *testing.T, args ...string) string {
	t.Helper()
	return u.must(t, "", program, append([]string{"--state", u.state}, args...)...)
}

// endpoint is a running crannog that listens for SSH clients.
type endpoint struct {
	*user
	cmd    *exec.Cmd
	config string
	alias  string
	stderr *servetest.Output
}

// open starts the program, which writes its configuration, and waits until it listens.
func (u *user) open(t *testing.T, alias string, args ...string) *endpoint {
	t.Helper()
	e := &endpoint{user: u, config: filepath.Join(u.home, alias+".conf"), alias: alias, stderr: &servetest.Output{}}
	e.cmd = u.command(context.Background(), program, append([]string{"--state", u.state, args[0], "--ssh-config", e.config}, args[1:]...)...)
	e.cmd.Stderr = e.stderr
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.kill)
	hosttest.Eventually(t, "the endpoint listens", func() bool { _, err := os.Stat(e.config); return err == nil })
	return e
}

// kill kills the program, which cannot clean up.
func (e *endpoint) kill() {
	_ = e.cmd.Process.Kill() // it may have ended
	_ = e.cmd.Wait()
}

// ssh runs OpenSSH's client.
func (e *endpoint) ssh(t *testing.T, input string, args ...string) result {
	t.Helper()
	return e.run(t, input, "ssh", append([]string{"-F", e.config, "-o", "BatchMode=yes"}, args...)...)
}

// inside runs a shell line in the sandbox over SSH, which must succeed, and returns its output.
func (e *endpoint) inside(t *testing.T, line string) string {
	t.Helper()
	return e.must(t, "", "ssh", "-F", e.config, "-o", "BatchMode=yes", e.alias, line)
}

func digest(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// freePort returns a port of this machine that is free now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// listens reports whether a port of this machine is open.
func listens(port string) bool {
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}
