package dev_test

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// SSH programs on the user's machine work with a sandbox as with any other SSH server.
func TestClients(t *testing.T) {
	u := newUser(t)
	id := strings.TrimSpace(u.crannog(t, "run", "-d", "-q", "--no-workspace", "--name", "box", "--", "sleep", "100000"))
	e := u.open(t, "crannog-box", "ssh", "box")
	before := servetest.Processes(t, u.state)
	for name, test := range map[string]func(*testing.T, *endpoint){
		"commands": commands, "a terminal": terminal, "scp and sftp": files, "rsync": rsync, "forwarding": forwarding, "refusals": refusals,
		"several sessions over one connection": multiplexed, "an editor": editor,
	} {
		t.Run(name, func(t *testing.T) { test(t, e) })
	}
	t.Run("the endpoint is killed", func(t *testing.T) { killed(t, e) })
	hosttest.EventuallyAtMost(t, "processes of the sandbox on the host", before, func() int { return servetest.Processes(t, u.state) })
	log := u.crannog(t, "audit", "tail", "--jsonl", "-n", "1000", "--sandbox", id, "--kind", "command.started")
	for _, want := range []string{`"cat; echo bad `, `["/.crannog/crannog-guest","sftp"]`, `["/.crannog/crannog-guest","connect","`} {
		if !strings.Contains(log, want) {
			t.Errorf("the audit log does not name %s: %s", want, log)
		}
	}
	u.crannog(t, "rm", "box")
	servetest.NothingLeft(t, u.state, id)
}

func commands(t *testing.T, e *endpoint) {
	if r := e.ssh(t, "words", e.alias, "cat; echo bad >&2; exit 3"); r.code != 3 || r.out != "words" || r.errs != "bad\n" {
		t.Errorf("a command with input and exit code 3: got %+v", r)
	}
	if r := e.ssh(t, "", e.alias, "true"); r.code != 0 || r.out+r.errs != "" {
		t.Errorf("true: %+v", r)
	}
	if r := e.ssh(t, "", e.alias, "kill -TERM $$"); r.code != 255 {
		t.Errorf("a signal: %+v", r)
	}
	if r := e.ssh(t, "", "-o", "SetEnv=GREETING=hello", e.alias, `echo $GREETING`); r.out != "hello\n" {
		t.Errorf("a variable: %+v", r)
	}
	if r := e.ssh(t, "echo from the shell; exit 4\n", "-T", e.alias); r.code != 4 || r.out != "from the shell\n" {
		t.Errorf("a shell: %+v", r)
	}
}

// terminal runs ssh on a terminal of a known size, which the program script creates.
func terminal(t *testing.T, e *endpoint) {
	line := fmt.Sprintf("stty rows 33 cols 101; ssh -F %s -t %s 'stty size; tty; echo $TERM; exit 5'", e.config, e.alias)
	r := e.run(t, "", "script", "-qefc", line, "/dev/null")
	if r.code != 5 || !strings.Contains(r.out, "33 101\r\n/dev/pts/") || !strings.Contains(r.out, "xterm\r\n") {
		t.Errorf("a command on a terminal of 33 by 101: got %+v", r)
	}
}

// large writes a file of 20 MB that cannot be compressed.
func large(t *testing.T, file string) string {
	t.Helper()
	data := make([]byte, 20<<20)
	_, _ = rand.Read(data) // never fails
	if err := os.WriteFile(file, data, 0o640); err != nil {
		t.Fatal(err)
	}
	return digest(t, file)
}

func files(t *testing.T, e *endpoint) {
	sum := large(t, filepath.Join(e.home, "big"))
	e.must(t, "", "scp", "-q", "-p", "-F", e.config, "big", e.alias+":copied")
	if got := e.inside(t, "sha256sum <copied; stat -c '%a %s' copied"); got != sum+"  -\n640 20971520\n" {
		t.Errorf("after scp: %q", got)
	}
	e.must(t, "", "scp", "-q", "-p", "-F", e.config, e.alias+":copied", "back")
	if info, err := os.Stat(filepath.Join(e.home, "back")); err != nil || info.Mode() != 0o640 || digest(t, filepath.Join(e.home, "back")) != sum {
		t.Errorf("scp back: %v, %v", info, err)
	}
	batch := "put big d\nmkdir dir\nrename d dir/moved\nchmod 600 dir/moved\nsymlink dir/moved link\nget link got\nls -l\nrm link\nrm dir/moved\nrmdir dir\n"
	if out := e.must(t, batch, "sftp", "-q", "-b", "-", "-F", e.config, e.alias); !strings.Contains(out, "link") || digest(t, filepath.Join(e.home, "got")) != sum {
		t.Errorf("sftp: %s", out)
	}
	if got := e.inside(t, "ls -A ~ | grep -c 'dir\\|link\\|^d$' || true"); got != "0\n" {
		t.Errorf("sftp left %q", got)
	}
	if r := e.run(t, "", "scp", "-q", "-F", e.config, "big", e.alias+":/usr/bin/big"); r.code == 0 {
		t.Error("a file was written where the sandbox's user may not")
	}
}

func rsync(t *testing.T, e *endpoint) {
	tree := filepath.Join(e.home, "tree")
	if err := os.MkdirAll(filepath.Join(tree, "sub"), 0o750); err != nil {
		t.Fatal(err)
	}
	large(t, filepath.Join(tree, "big"))
	for i := range 200 {
		if err := os.WriteFile(filepath.Join(tree, "sub", fmt.Sprint(i)), fmt.Append(nil, i), 0o604); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"Number of regular files transferred: 201\n", "Number of regular files transferred: 0\n"} {
		out := e.must(t, "", "rsync", "-a", "--stats", "-e", "ssh -F "+e.config, "tree/", e.alias+":tree/")
		if !strings.Contains(out, want) || i == 1 && !strings.Contains(out, "Literal data: 0 bytes") {
			t.Errorf("pass %d: %s", i, out)
		}
	}
	e.must(t, "", "rsync", "-a", "-e", "ssh -F "+e.config, e.alias+":tree/", "again/")
	e.must(t, "", "diff", "-r", "tree", "again")
	if info, err := os.Stat(filepath.Join(e.home, "again", "sub", "7")); err != nil || info.Mode() != 0o604 {
		t.Errorf("a file after rsync in both directions: got %v, %v, want the mode 604", info, err)
	}
}

// server starts an HTTP server in the sandbox, which outlives its SSH session, and returns its
// port.
func server(t *testing.T, e *endpoint) string {
	t.Helper()
	const line = `import http.server, os
s = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print(s.server_port, flush=True)
os.dup2(os.open("/dev/null", os.O_RDWR), 1); os.dup2(1, 2); os.dup2(1, 0)
s.serve_forever()`
	port := strings.TrimSpace(e.ssh(t, "cd $(mktemp -d); echo content > file; python3 -c '"+line+"' &\n", e.alias, "bash").out)
	if port == "" {
		t.Fatal("the server did not start")
	}
	return port
}

// tunnel runs ssh in the background until the test ends.
func tunnel(t *testing.T, e *endpoint, ready string, args ...string) *endpoint {
	t.Helper()
	cmd := e.command(t.Context(), "ssh", append([]string{"-F", e.config, "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-N"}, append(args, e.alias)...)...)
	log := &servetest.Output{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	})
	hosttest.Eventually(t, "ssh forwards: "+log.String(), func() bool { return listens(ready) })
	return &endpoint{user: e.user, cmd: cmd, stderr: log}
}

func forwarding(t *testing.T, e *endpoint) {
	port, local, other := server(t, e), freePort(t), freePort(t)
	f := tunnel(t, e, local, "-L", "127.0.0.1:"+local+":localhost:"+port, "-L", "127.0.0.1:"+other+":example.com:80")
	for range 3 {
		if got := e.must(t, "", "curl", "-sS", "--fail", "http://127.0.0.1:"+local+"/file"); got != "content\n" {
			t.Errorf("a request through the forwarded port: got %q", got)
		}
	}
	if r := e.run(t, "", "curl", "-sS", "http://127.0.0.1:"+other+"/"); r.code == 0 {
		t.Errorf("another host answered: %+v", r)
	}
	hosttest.Eventually(t, "the client learns the reason", func() bool { return strings.Contains(f.stderr.String(), "only ports of the sandbox itself") })
	if r := e.ssh(t, "", "-W", "localhost:1", e.alias); r.out != "" {
		t.Errorf("a closed port: %+v", r)
	}
}

func refusals(t *testing.T, e *endpoint) {
	e.must(t, "", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(e.home, "stranger"))
	if r := e.ssh(t, "", "-o", "IdentitiesOnly=yes", "-o", "IdentityFile=none", "-i", "stranger", "-F", "/dev/null", "-p", portOf(t, e), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "user@127.0.0.1", "true"); r.code != 255 || !strings.Contains(r.errs, "Permission denied (publickey)") {
		t.Errorf("a wrong key: %+v", r)
	}
	if r := e.ssh(t, "", "-l", "root", e.alias, "true"); r.code != 255 || !strings.Contains(r.errs, "Permission denied (publickey)") {
		t.Errorf("another user: %+v", r)
	}
	if r := e.ssh(t, "", "-R", "0:localhost:22", "-o", "ExitOnForwardFailure=yes", e.alias, "true"); r.code != 255 {
		t.Errorf("remote forwarding: %+v", r)
	}
	if r := e.ssh(t, "", "-A", e.alias, "echo agent=$SSH_AUTH_SOCK"); r.out != "agent=\n" {
		t.Errorf("agent forwarding: %+v", r)
	}
	if err := os.WriteFile(filepath.Join(e.home, "wrong"), []byte(e.alias+" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE3a6Xo0PNjcJVDeA3Kmn9UY9JTnZrTPs8FRdL/xI7kA\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := e.ssh(t, "", "-o", "UserKnownHostsFile=wrong", e.alias, "true"); r.code != 255 || !strings.Contains(r.errs, "Host key verification failed") {
		t.Errorf("another host key: %+v", r)
	}
}

func portOf(t *testing.T, e *endpoint) string {
	t.Helper()
	for line := range strings.Lines(e.must(t, "", "ssh", "-F", e.config, "-G", e.alias)) {
		if port, ok := strings.CutPrefix(line, "port "); ok {
			return strings.TrimSpace(port)
		}
	}
	t.Fatal("no port is configured")
	return ""
}

func multiplexed(t *testing.T, e *endpoint) {
	control := []string{"-o", "ControlMaster=auto", "-o", "ControlPersist=yes", "-o", "ControlPath=" + filepath.Join(e.home, "control")}
	done := make(chan result, 8)
	e.ssh(t, "", append(control, e.alias, "true")...)
	for i := range cap(done) {
		go func() { done <- e.ssh(t, fmt.Sprint(i), append(control, e.alias, "cat; exit "+fmt.Sprint(i))...) }()
	}
	for range cap(done) {
		if r := <-done; r.out != fmt.Sprint(r.code) {
			t.Errorf("one of several concurrent commands: got %+v, want its own output", r)
		}
	}
	if r := e.ssh(t, "", append(control, "-O", "exit", e.alias)...); r.code != 0 {
		t.Errorf("the master: %+v", r)
	}
}

// editor does what an editor does: it starts its server with a script for bash, and reaches it
// through a SOCKS proxy, also after the session has ended.
func editor(t *testing.T, e *endpoint) {
	port, socks := server(t, e), freePort(t)
	tunnel(t, e, socks, "-D", "127.0.0.1:"+socks)
	for _, host := range []string{"127.0.0.1", "localhost"} {
		if got := e.must(t, "", "curl", "-sS", "--fail", "--socks5-hostname", "127.0.0.1:"+socks, "http://"+host+":"+port+"/file"); got != "content\n" {
			t.Errorf("a request through the SOCKS proxy to %s: got %q", host, got)
		}
	}
	if r := e.run(t, "", "curl", "-sS", "--socks5-hostname", "127.0.0.1:"+socks, "http://example.com/"); r.code == 0 {
		t.Errorf("another host answered: %+v", r)
	}
}

// killed kills the program and checks that its clients end, its ports are closed, and the programs
// that it ran for terminals and connections end in the sandbox.
func killed(t *testing.T, e *endpoint) {
	port, local := server(t, e), freePort(t)
	tunnel(t, e, local, "-L", "127.0.0.1:"+local+":localhost:"+port)
	shell := e.command(t.Context(), "ssh", "-F", e.config, "-tt", e.alias, "echo up; exec sleep 54321")
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", "127.0.0.1:"+local)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	inside := func() string {
		return e.crannog(t, "exec", "box", "--", "sh", "-c", "ps -eo args | grep -c '[c]onnect [0-9]\\|[s]leep 54321' || true")
	}
	hosttest.Eventually(t, "both run", func() bool { return inside() == "2\n" })
	own := portOf(t, e)
	e.kill()
	if err := shell.Wait(); err == nil {
		t.Error("the client ended without an error")
	}
	hosttest.Eventually(t, "both have ended", func() bool { return inside() == "0\n" })
	if listens(own) {
		t.Error("the endpoint still listens")
	}
}
