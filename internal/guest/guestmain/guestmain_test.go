package guestmain

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/hosttest"
)

// roleVariable makes the test binary a guest.
const roleVariable = "GUESTMAIN_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "guest" {
		if err := loopbackUp(); err != nil {
			fmt.Println("loopback:", err)
			os.Exit(3)
		}
		Main()
	}
	os.Exit(m.Run())
}

// loopbackUp does what an engine does before it starts the guest.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// running is a guest that is the first process of its own namespaces.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	first net.Conn // the stream that the guest was started with
}

func boot(t *testing.T, cfg guest.Config) *running {
	t.Helper()
	hosttest.Need(t, hosttest.Root)
	input, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	first, theirs := channelPair(t)
	cmd.Args, cmd.ExtraFiles = append(cmd.Args, engine.GuestChannel), theirs
	cmd.Env = append(os.Environ(), roleVariable+"=guest")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS}
	cmd.Stdin = strings.NewReader(string(input))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range theirs {
		f.Close() // the guest's end must be seen
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()
		}
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != engine.GuestReady {
		t.Fatalf("the guest says %q", lines.Text())
	}
	// Its standard output is let go of.
	if lines.Scan() {
		t.Errorf("the guest goes on: %q", lines.Text())
	}
	return &running{t: t, cmd: cmd, first: first}
}

// call sends a request from inside the guest's network.
func (r *running) call(method, path, body string, headers ...string) (int, string) {
	r.t.Helper()
	type answer struct {
		code int
		body string
		err  error
	}
	done := make(chan answer)
	go func() {
		// The thread stays in the other network, so it must end with this
		// goroutine: it is never unlocked.
		runtime.LockOSThread()
		code, text, err := r.callHere(method, path, body, headers)
		done <- answer{code, text, err}
	}()
	a := <-done
	if a.err != nil {
		r.t.Fatal(a.err)
	}
	return a.code, a.body
}

func (r *running) callHere(method, path, body string, headers []string) (int, string, error) {
	network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", r.cmd.Process.Pid))
	if err != nil {
		return 0, "", err
	}
	defer network.Close()
	if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil {
		return 0, "", err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, "", err
	}
	conn := os.NewFile(uintptr(fd), "connection")
	defer conn.Close()
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: engine.GuestPort, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, "", err
	}
	req, err := http.NewRequest(method, "http://guest"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	req.Close = true
	if err := req.Write(conn); err != nil {
		return 0, "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// shell runs a command and returns the raw stream of its events.
func (r *running) shell(command string) string {
	r.t.Helper()
	msg := fmt.Sprintf(`{"process":{"cmd":"/bin/sh","args":["-c",%q]},"stdin":false}`, command)
	envelope := string([]byte{0, 0, 0, byte(len(msg) >> 8), byte(len(msg))}) + msg
	code, body := r.call("POST", "/process.Process/Start", envelope,
		"Content-Type", "application/connect+json", "Connect-Protocol-Version", "1", "X-Access-Token", "access")
	if code != 200 {
		r.t.Fatalf("start: %d %s", code, body)
	}
	return body
}

// config has root as its user: then nothing on the host changes owner.
func config() guest.Config {
	return guest.Config{SandboxID: "i", Hostname: "inside", AccessToken: "access", ControlToken: "control", DefaultUser: "root", DefaultDir: "/"}
}

func TestFirstProcess(t *testing.T) {
	r := boot(t, config())
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got := r.shell(`test $(uname -n) = inside && test $$ -gt 1 && exit 7`); !strings.Contains(got, `"exit status 7"`) {
		t.Errorf("the host name inside: %q", got)
	}
	if now, err := os.Hostname(); err != nil || now != host {
		t.Errorf("the host is now called %q", now)
	}
	if code, _ := r.call("GET", guest.PathReady, "", guest.ControlHeader, "control"); code != 204 {
		t.Errorf("ready: %d", code)
	}
	// No stray descriptor of the guest reaches a program.
	if got := r.shell(`set -- /proc/self/fd/*; exit $#`); !strings.Contains(got, `"exit status 4"`) {
		t.Errorf("descriptors: %q", got) // 0, 1, 2 and that of the directory
	}
}

func TestOrphansAreReaped(t *testing.T) {
	r := boot(t, config())
	if got := r.shell(`i=0; while [ $i -lt 1000 ]; do (true &); i=$((i+1)); done; exit 9`); !strings.Contains(got, `"exit status 9"`) {
		t.Fatalf("got %q", got)
	}
	var left []string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if left = childrenOf(r.cmd.Process.Pid); len(left) == 0 {
			return
		}
	}
	t.Errorf("%d children are left", len(left))
}

func childrenOf(pid int) []string {
	var found []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it ended
		}
		_, rest, _ := strings.Cut(string(data), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == fmt.Sprint(pid) {
			found = append(found, string(data))
		}
	}
	return found
}

func TestSignalsDoNotEndIt(t *testing.T) {
	r := boot(t, config())
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1} {
		if err := r.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.shell(`kill -TERM 1; kill -INT 1; trap '' TERM; kill -TERM $$; exit 5`); !strings.Contains(got, `"exit status 5"`) {
		t.Errorf("got %q", got)
	}
	// What the guest passes over must not be passed over by its children.
	if got := r.shell(`kill -PIPE $$; exit 5`); !strings.Contains(got, `"signal: broken pipe"`) {
		t.Errorf("a child ignores a signal: %q", got)
	}
}

func TestEndAt(t *testing.T) {
	cfg := config()
	cfg.EndAt = time.Now().Add(time.Hour)
	r := boot(t, cfg)
	if code, body := r.call("POST", guest.PathUpdate, `{"end_at":"2020-01-01T00:00:00Z"}`, guest.ControlHeader, "control"); code != 204 {
		t.Fatalf("update: %d %s", code, body)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestReadConfig(t *testing.T) {
	good := `{"sandbox_id":"i","access_token":"a","control_token":"c","default_user":"u"}`
	if cfg, err := readConfig(strings.NewReader(good + "\n")); err != nil || cfg.SandboxID != "i" {
		t.Errorf("%+v %v", cfg, err)
	}
	for _, bad := range []string{"", "{", good[:20], good + good, `{"unknown":1}`, "[]", strings.Repeat(" ", maxConfig) + good} {
		if _, err := readConfig(strings.NewReader(bad)); err == nil {
			t.Errorf("%.40q was accepted", bad)
		}
	}
}

func TestEnsure(t *testing.T) {
	dir := t.TempDir()
	made := filepath.Join(dir, "a/b")
	for range 2 {
		if err := ensure(made, 0o777|os.ModeSticky); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(made); err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if err := os.Chmod(made, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := ensure(made, 0o755); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(made); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("what was there has changed: %v %v", info.Mode(), err)
	}
}

func TestHand(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	user := identity.User{Name: "u", UID: 54321, GID: 54322}
	owner := func(path string) uint32 {
		t.Helper()
		var stat unix.Stat_t
		if err := unix.Lstat(path, &stat); err != nil {
			t.Fatal(err)
		}
		return stat.Uid
	}
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, link, "/nonexistent", ""} {
		if err := hand(path, user, false); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	if owner(dir) != 54321 || owner("/etc") != 0 || owner(link) != 0 {
		t.Error("wrong owners")
	}
	if err := os.Chown(dir, 777, 777); err != nil {
		t.Fatal(err)
	}
	if err := hand(dir, user, true); err != nil || owner(dir) != 777 {
		t.Errorf("with file access a stranger's directory is the stranger's: %v", err)
	}
}
