package escape_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
	"github.com/crannog/crannog/tests/escape/attempts"
)

// host is this machine with everything that the attempts attack, and a server.
type host struct {
	client    *crannog.Client
	workspace string // holds the probe program
	target    attempts.Target
	before    map[string]string
}

// limits are the limits of the sandboxes, which attempts on resources exceed.
var limits = api.Limits{MemoryBytes: 512 << 20, CPUMillis: 2000, PIDs: 128, DiskBytes: 96 << 20, DiskInodes: 4000, ShmBytes: 64 << 20}

func newHost(t *testing.T) *host {
	t.Helper()
	state := t.TempDir()
	server := servetest.Start(t, program, state)
	h := &host{client: server.Local(t), workspace: t.TempDir(), target: attempts.Target{
		Secrets: map[string]string{}, Server: filepath.Join(state, "crannog.sock"),
		MemoryBytes: 768 << 20, DiskBytes: 128 << 20, Processes: 160, Files: 5000,
	}}
	if hosttest.Full() {
		// In a container the limit of a directory counts.
		h.target.Files = 45_000
	}
	probe := filepath.Join(h.workspace, "probe")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", probe, "./probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v %s", err, out)
	}
	h.secrets(t)
	h.listen(t)
	h.disk(t)
	h.target.VictimMark = "victim-of-" + filepath.Base(state) + fmt.Sprint(os.Getpid())
	h.target.Victim = process(t, probe, h.target.VictimMark)
	h.before = h.state(t)
	return h
}

// process starts a process of the host that does nothing.
func process(t *testing.T, probe, mark string) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), probe, attempts.Wait, mark)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

// secrets writes a file into directories of the host. Every user may read it, so that no missing
// permission hides it.
func (h *host) secrets(t *testing.T) {
	t.Helper()
	for _, place := range []string{"/root", "/etc", "/tmp", "/var/tmp", "/var/lib", "/run", "/home", "/dev/shm"} {
		dir, err := os.MkdirTemp(place, "crannog-escape-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		h.target.Secrets[place] = filepath.Join(dir, "secret")
		if err := os.WriteFile(h.target.Secrets[place], []byte(attempts.SecretText), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// listen serves the secret at a port of every address of the host, at a socket's path and at an
// abstract name.
func (h *host) listen(t *testing.T) {
	t.Helper()
	open := func(network, address string) net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	l := open("tcp", ":0")
	h.target.Port = l.Addr().(*net.TCPAddr).Port
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, attempts.SecretText) })} //nolint:gosec // until the test ends
	go server.Serve(l)
	secret := h.target.Secrets["/var/tmp"]
	h.target.Socket = filepath.Join(filepath.Dir(secret), "socket")
	path := open("unix", h.target.Socket)
	if err := os.Chmod(h.target.Socket, 0o666); err != nil {
		t.Fatal(err)
	}
	h.target.Abstract = "@" + filepath.Base(filepath.Dir(secret))
	go attempts.PassSecret(path, secret)
	go attempts.PassSecret(open("unix", h.target.Abstract), secret)
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil {
			h.target.Addresses = append(h.target.Addresses, ip.IP.String())
		}
	}
}

// disk finds a disk of the host.
func (h *host) disk(t *testing.T) {
	t.Helper()
	names, err := filepath.Glob("/sys/class/block/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := "/dev/" + filepath.Base(name)
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		var s unix.Stat_t
		err = unix.Fstat(int(f.Fd()), &s)
		_ = f.Close()
		if err == nil && s.Mode&unix.S_IFMT == unix.S_IFBLK {
			h.target.Disk, h.target.Device = path, s.Rdev
			return
		}
	}
	h.target.Disk = "/dev/sda"
}

// state returns what no sandbox may change on the host.
func (h *host) state(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	all["the name of the host"] = name
	for _, path := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/panic", "/proc/sys/fs/file-max", "/proc/sys/kernel/randomize_va_space",
		"/proc/swaps", "/proc/modules", "/etc/passwd", "/etc/shadow", filepath.Join(h.workspace, "probe"),
	} {
		data, err := os.ReadFile(path)
		all[path] = fmt.Sprintf("%d %x %v", len(data), sum(data), err)
	}
	entries, err := os.ReadDir(h.workspace)
	if err != nil {
		t.Fatal(err)
	}
	all["the workspace"] = fmt.Sprint(entries)
	return all
}

// wantUnchanged checks that the host's state and process are as before.
func (h *host) wantUnchanged(t *testing.T) {
	t.Helper()
	for what, now := range h.state(t) {
		if before := h.before[what]; now != before {
			t.Errorf("%s changed from %s to %s", what, before, now)
		}
	}
	if err := unix.Kill(h.target.Victim, 0); err != nil {
		t.Errorf("the process of the host has ended: %v", err)
	}
}

// control makes the attempts on the host, in new namespaces, where each must succeed.
func (h *host) control(t *testing.T) {
	t.Helper()
	target := h.target
	target.Control, target.First = true, target.Victim
	target.Addresses = []string{"8.8.8.8"} // on the loopback device of the control's network namespace
	answers := map[string]attempts.Answer{}
	for _, what := range []string{attempts.RunAll, attempts.RunLast} {
		ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
		cmd := exec.CommandContext(ctx, filepath.Join(h.workspace, "probe"), what)
		cmd.Env = append(os.Environ(), attempts.Variable+"="+encode(t, target))
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, Unshareflags: unix.CLONE_NEWNS}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		cancel()
		if err != nil {
			t.Fatalf("control: %v %s %s", err, &stderr, out)
		}
		for _, a := range decode(t, string(out)) {
			answers[a.Name] = a
		}
	}
	proven := 0
	for _, a := range attempts.All() {
		answer, ok := answers[a.Name]
		switch why := a.Unproven(answer); {
		case !ok:
			t.Errorf("control: no answer to %s", a.Name)
		case answer.Verdict == attempts.Escaped && answer.Text == "", answer.Verdict == attempts.Escaped && a.Reached(answer):
			proven++
		case why != "":
			t.Logf("%s has no control on this host: %s", a.Name, why)
		case hosttest.Must() || answer.Verdict == attempts.Escaped:
			t.Errorf("control: %s is %s on the host (%s), so that its refusal inside proves nothing", a.Name, answer.Verdict, answer.Text)
		default:
			t.Logf("%s has no control on this host: %s", a.Name, answer.Text)
		}
	}
	t.Logf("%d of %d attempts succeed on this host", proven, len(attempts.All()))
}

// attack makes the attempts in one sandbox as each user.
func (h *host) attack(t *testing.T, e attackedEngine) map[string][]attempts.Answer {
	t.Helper()
	small := limits
	small.CommandTimeoutSeconds = hosttest.Patience(hosttest.Hang).Seconds()
	if e.unlimited {
		small.DiskBytes, small.DiskInodes = 0, 0
	}
	sb, err := h.client.Create(t.Context(), crannog.Engine(e.name), crannog.Level(e.level), crannog.Image(e.image), crannog.Workspace(h.workspace), crannog.Limits(small),
		crannog.Policy("policy: v1\nnetwork:\n  unlisted: deny\n"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Kill(context.Background()); err != nil {
			t.Errorf("remove the sandbox: %v", err)
		}
	})
	target := h.target
	target.First = 1
	env := map[string]string{attempts.Variable: encode(t, target)}
	answers := map[string][]attempts.Answer{}
	for _, user := range e.users {
		res, err := sb.Exec(t.Context(), api.Exec{Cmd: []string{"/workspace/probe", attempts.RunAll}, User: user, Env: env})
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("as %s: %v %+v", user, err, res)
		}
		for _, a := range decode(t, res.Stdout) {
			t.Logf("%-8s %-34s %-8s %s", user, a.Name, a.Verdict, a.Text)
			answers[a.Name] = append(answers[a.Name], a)
		}
	}
	// The attempt may end the sandbox, which counts as a refusal.
	res, err := sb.Exec(t.Context(), api.Exec{Cmd: []string{"/workspace/probe", attempts.RunLast}, User: e.users[0], Env: env})
	last := decode(t, res.Stdout)
	if len(last) == 0 {
		last = []attempts.Answer{{Name: attempts.Last, Verdict: attempts.Blocked, Text: fmt.Sprintf("ended: %v %+v", err, res)}}
	}
	answers[attempts.Last] = last
	return answers
}

func encode(t *testing.T, target attempts.Target) string {
	t.Helper()
	text, err := json.Marshal(target)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func decode(t *testing.T, text string) (list []attempts.Answer) {
	t.Helper()
	for line := range strings.Lines(text) {
		var a attempts.Answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, a)
	}
	return list
}
