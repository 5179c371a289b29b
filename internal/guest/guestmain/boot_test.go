package guestmain

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
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

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/relay"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// Variables that make the test binary a guest with its own root and events.
const (
	roleVariable   = "GUESTMAIN_TEST_ROLE"
	rootVariable   = "GUESTMAIN_TEST_ROOT"
	eventsVariable = "GUESTMAIN_TEST_EVENTS"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "guest" {
		if err := loopbackUp(); err != nil {
			fmt.Println("loopback:", err)
			os.Exit(3)
		}
		root := os.Getenv(rootVariable)
		mainIn(platform{root: root, events: os.Getenv(eventsVariable), become: func(hostname string, fresh bool) error {
			if fresh {
				// A test that creates this pipe decides how long it takes.
				if slow, err := os.Open(filepath.Join(root, "slow")); err == nil {
					_, _ = slow.Read(make([]byte, 1)) // waits for data or the end
					slow.Close()
				}
				// A kernel would generate a boot ID here.
				if err := os.WriteFile(filepath.Join(root, "fresh"), nil, 0o600); err != nil {
					return err
				}
			}
			return unix.Sethostname([]byte(hostname))
		}})
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

// testGuest is a guest that is the first process of its own namespaces.
type testGuest struct {
	t     *testing.T
	cmd   *exec.Cmd
	root  string         // directory of the system's files
	first *relay.Channel // the channel that the guest was started with

	access string // access token for shell

	input  string   // named pipe, to which several configurations can be written
	events *os.File // named pipe, to which the test writes events of the kernel
	lines  *bufio.Scanner
}

// boot starts a guest and waits until it is ready.
func boot(t *testing.T, cfg guest.Config) *testGuest {
	t.Helper()
	r := bootIn(t, t.TempDir(), cfg)
	if output := r.nextLine(); output != guestboot.Ready {
		t.Fatalf("the guest printed %q", output)
	}
	return r
}

// bootIn starts a guest below a root. archive follows the configuration.
func bootIn(t *testing.T, root string, cfg guest.Config, archive ...byte) *testGuest {
	t.Helper()
	hosttest.Need(t, hosttest.Root)
	dir := t.TempDir()
	r := &testGuest{t: t, root: root, access: "access", input: filepath.Join(dir, "input")}
	eventsName := filepath.Join(dir, "events")
	for _, name := range []string{r.input, eventsName} {
		if err := unix.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if r.events, err = os.OpenFile(eventsName, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.events.Close() })
	// Opened for reading and writing, so that opening does not wait for the guest.
	stdin, err := os.OpenFile(r.input, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.configure(cfg, archive...)
	r.cmd = exec.CommandContext(t.Context(), os.Args[0])
	var guestFiles []*os.File
	r.first, guestFiles = channelPair(t)
	r.cmd.Args, r.cmd.ExtraFiles = append(r.cmd.Args, guestboot.ChannelFlag), guestFiles
	r.cmd.Env = append(os.Environ(), roleVariable+"=guest", rootVariable+"="+root, eventsVariable+"="+eventsName)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS}
	// The guest gets a read-only descriptor. Otherwise it would keep its own input open.
	reading, err := os.OpenFile(r.input, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.cmd.Stdin = reading
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.cmd.Stderr = r.cmd.Stdout
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range append(guestFiles, stdin, reading) {
		f.Close() // so that the pipes end when the guest ends
	}
	t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			_ = r.cmd.Process.Kill() // the process may have ended
			_ = r.cmd.Wait()
		}
	})
	r.lines = bufio.NewScanner(out)
	return r
}

// configure writes a configuration to the pipe that the guest reads.
func (r *testGuest) configure(cfg guest.Config, archive ...byte) {
	r.t.Helper()
	input, err := json.Marshal(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	// Opened for reading and writing, so that opening does not wait for the guest. The data stays
	// in the pipe until the guest reads it, because the guest keeps the pipe open.
	pipe, err := os.OpenFile(r.input, os.O_RDWR, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer pipe.Close()
	if _, err := pipe.Write(append(append(input, '\n'), archive...)); err != nil {
		r.t.Fatal(err)
	}
}

// nextLine returns the next line of the guest, or the end of its output.
func (r *testGuest) nextLine() string {
	r.t.Helper()
	if !r.lines.Scan() {
		return "the end"
	}
	return r.lines.Text()
}

// sendEvent sends the guest an event of the kernel, and waits until the guest has read it.
func (r *testGuest) sendEvent(event string) {
	r.t.Helper()
	if _, err := r.events.WriteString(event + "\n"); err != nil {
		r.t.Fatal(err)
	}
	// Each open of the kernel's file reports one event, so the guest must read one event at a time.
	for end := hosttest.Deadline(); ; time.Sleep(time.Millisecond) {
		unread, err := unix.IoctlGetInt(int(r.events.Fd()), unix.TIOCINQ)
		if err != nil || time.Now().After(end) {
			r.t.Fatalf("the guest did not read %d bytes of the event: %v", unread, err)
		}
		if unread == 0 {
			return
		}
	}
}

// call sends a request from inside the guest's network.
func (r *testGuest) call(method, path, body string, headers ...string) (int, string) {
	r.t.Helper()
	type answer struct {
		code int
		body string
		err  error
	}
	done := make(chan answer)
	go func() {
		// The thread stays in the other network, so it must end with this goroutine: it is never
		// unlocked.
		runtime.LockOSThread()
		code, text, err := r.callHere(method, path, body, headers)
		done <- answer{code, text, err}
	}()
	a := <-done
	if a.err != nil {
		r.t.Fatalf("request to the guest: %v", a.err)
	}
	return a.code, a.body
}

func (r *testGuest) callHere(method, path, body string, headers []string) (int, string, error) {
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
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: guestboot.Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
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

// enveloped returns a message in stream format.
func enveloped(message string) string {
	return string([]byte{0, 0, 0, byte(len(message) >> 8), byte(len(message))}) + message
}

// shell runs a command and returns the raw stream of its events.
func (r *testGuest) shell(command string) string {
	r.t.Helper()
	msg := fmt.Sprintf(`{"process":{"cmd":"/bin/sh","args":["-c",%q]},"stdin":false}`, command)
	code, body := r.call("POST", "/process.Process/Start", enveloped(msg),
		"Content-Type", "application/connect+json", "Connect-Protocol-Version", "1", "X-Access-Token", r.access)
	if code != 200 {
		r.t.Fatalf("start of a command: got %d %s, want 200", code, body)
	}
	return body
}

// config returns a configuration with root as its user, so that no owner changes on the host.
func config() guest.Config {
	return guest.Config{SandboxID: "i", Hostname: "inside", AccessToken: "access", ControlToken: "control", DefaultUser: "root", DefaultDir: "/"}
}
