package guestmain

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/probe"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// copied is the configuration of another sandbox that starts from the state of the one with config.
func copied() guest.Config {
	cfg := config()
	cfg.Renew, cfg.SandboxID, cfg.Hostname = guest.Copied, "copy", "another"
	cfg.AccessToken, cfg.ControlToken = "access2", "control2"
	cfg.Env = map[string]string{"WHOSE": "the copy's"}
	return cfg
}

func (r *running) file(name string) string {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.root, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(data)
}

// dial opens the first stream to the guest's own port.
func (r *running) dial() net.Conn {
	r.t.Helper()
	conn, err := r.first.Dial(r.t.Context(), guestboot.Port)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(hosttest.Deadline()); err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// A copy whose source's end time has passed does not end because of that, however long it takes
// until its own end time applies.
func TestCopyIgnoresTheOldEndTime(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(root, "slow"), 0o600); err != nil {
		t.Fatal(err)
	}
	slow, err := os.OpenFile(filepath.Join(root, "slow"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	cfg := config()
	cfg.EndAt = time.Now().Add(-time.Hour)
	r := bootIn(t, root, cfg)
	if output := r.nextLine(); output != guestboot.Ready {
		t.Fatalf("the guest says %q", output)
	}
	r.configure(copied())
	r.happens("restore")
	<-time.After(3 * time.Second) // longer than an end waits for another
	if _, err := slow.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if output := r.nextLine(); output != guestboot.Ready {
		t.Errorf("the guest says %q", output)
	}
}

func TestACopyIsAnotherSandbox(t *testing.T) {
	cfg := config()
	cfg.Files = []guest.File{{Path: "/etc/resolv.conf", Mode: 0o644, Data: []byte("first\n")}}
	r := boot(t, cfg)
	machine := r.file("etc/machine-id")
	if len(machine) != 33 {
		t.Fatalf("the machine is called %q", machine)
	}
	next := copied()
	next.Files = []guest.File{{Path: "/etc/resolv.conf", Mode: 0o644, Data: []byte("second\n")}}
	r.configure(next)
	r.happens("restore")
	if output := r.nextLine(); output != guestboot.Ready {
		t.Fatalf("the guest says %q", output)
	}
	if code, _ := r.call("GET", guest.PathReady, "", guest.ControlHeader, "control"); code != 404 {
		t.Errorf("the old control token: %d", code)
	}
	if code, _ := r.call("GET", guest.PathReady, "", guest.ControlHeader, "control2"); code != 204 {
		t.Errorf("the new control token: %d", code)
	}
	if code, _ := r.call("GET", "/envs", "", "X-Access-Token", "access"); code != 401 {
		t.Errorf("the old access token: %d", code)
	}
	_, envs := r.call("GET", "/envs", "", "X-Access-Token", "access2")
	for _, part := range []string{`"E2B_SANDBOX_ID":"copy"`, `"WHOSE":"the copy's"`} {
		if !strings.Contains(envs, part) {
			t.Errorf("%s is not in %s", part, envs)
		}
	}
	if got := r.file("etc/machine-id"); got == machine || len(got) != 33 {
		t.Errorf("the machine is called %q, and was %q", got, machine)
	}
	if got := r.file("etc/hostname"); got != "another\n" {
		t.Errorf("host name: %q", got)
	}
	if got := r.file("etc/hosts"); !strings.Contains(got, " another\n") || strings.Contains(got, "inside") {
		t.Errorf("hosts: %q", got)
	}
	if got := r.file("etc/resolv.conf"); got != "second\n" {
		t.Errorf("a file of the configuration: %q", got)
	}
	r.file("fresh") // a new boot ID was requested
	r.access = "access2"
	if got := r.shell(`test "$(uname -n)" = another && exit 7`); !strings.Contains(got, `"exit status 7"`) {
		t.Errorf("the host name inside: %q", got)
	}
}

// A resumed sandbox keeps its machine ID, and gets no new boot ID.
func TestResumedIsTheSameMachine(t *testing.T) {
	r := boot(t, config())
	machine := r.file("etc/machine-id")
	next := config()
	next.Renew, next.AccessToken = guest.Resumed, "access2"
	for range 2 {
		// Saving a state changes nothing, even if it is repeated.
		r.happens("resume")
		if code, _ := r.call("GET", guest.PathReady, "", guest.ControlHeader, "control"); code != 204 {
			t.Fatalf("ready: %d", code)
		}
		r.configure(next)
		r.happens("restore")
		if output := r.nextLine(); output != guestboot.Ready {
			t.Fatalf("the guest says %q", output)
		}
	}
	if got := r.file("etc/machine-id"); got != machine {
		t.Errorf("the machine is called %q, and was %q", got, machine)
	}
	if _, err := os.Stat(filepath.Join(r.root, "fresh")); err == nil {
		t.Error("a boot ID was drawn")
	}
	if code, _ := r.call("GET", "/envs", "", "X-Access-Token", "access2"); code != 200 {
		t.Errorf("the new access token: %d", code)
	}
}

// A command's stream breaks off and the command continues. The old channel does not work any more.
func TestStreamsAreCut(t *testing.T) {
	r := boot(t, config())
	conn := r.dial()
	message := `{"process":{"cmd":"/bin/cat"},"stdin":true,"tag":"mine"}`
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://guest/process.Process/Start", strings.NewReader(enveloped(message)))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", "X-Access-Token": "access"} {
		req.Header.Set(name, value)
	}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	for buffer := make([]byte, 4096); !strings.Contains(seen.String(), `"pid"`); {
		n, err := conn.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		seen.Write(buffer[:n])
	}
	r.configure(copied())
	r.happens("restore")
	if output := r.nextLine(); output != guestboot.Ready {
		t.Fatalf("the guest says %q", output)
	}
	rest, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the stream was not cut")
	}
	if strings.Contains(string(rest), `"end"`) {
		t.Errorf("the stream ended as if the command had: %q", rest)
	}
	r.access = "access2"
	if code, body := r.call("POST", "/process.Process/List", "{}", "Content-Type", "application/json", "X-Access-Token", "access2"); code != 200 || !strings.Contains(body, `"mine"`) {
		t.Errorf("the command is gone: %d %s", code, body)
	}
}

// A sandbox that is not set up correctly never reports that it is ready.
func TestARestoredSandboxIsChecked(t *testing.T) {
	for name, change := range map[string]func(*guest.Config){
		"checks":  func(c *guest.Config) { c.Checks = probe.Checks{DiskBytes: 1} },
		"renewal": func(c *guest.Config) { c.Renew = "" },
		"token":   func(c *guest.Config) { c.AccessToken = "" },
	} {
		t.Run(name, func(t *testing.T) {
			r := boot(t, config())
			next := copied()
			change(&next)
			r.configure(next)
			r.happens("restore")
			output := r.nextLine()
			if !strings.HasPrefix(output, "crannog-guest: ") {
				t.Errorf("the guest says %q", output)
			}
			if err := r.cmd.Wait(); err == nil || r.cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// Programs that the guest starts get none of its standard streams, and it does not write to them by
// mistake.
func TestStandardStreamsAreReplaced(t *testing.T) {
	r := boot(t, config())
	for _, fd := range []string{"0", "1", "2"} {
		name, to := filepath.Join("/proc", strconv.Itoa(r.cmd.Process.Pid), "fd", fd), ""
		// The guest reports that it is ready shortly before it replaces its standard streams.
		for end := hosttest.Deadline(); to != os.DevNull && time.Now().Before(end); {
			to, _ = os.Readlink(name)
		}
		if to != os.DevNull {
			t.Errorf("descriptor %s is %q", fd, to)
		}
	}
}

// Of two saves in quick succession, only the first is reported.
func TestStateSavedTwice(t *testing.T) {
	r := boot(t, config())
	for range 2 {
		r.configure(copied())
		r.happens("resume")
		if output := r.nextLine(); output != guestboot.Ready {
			t.Fatalf("the guest says %q", output)
		}
		r.happens("restore") // the guest has done this
		// This save changes nothing. Once its event has been read, the previous event has been
		// handled without the configuration that follows.
		r.happens("resume")
		r.configure(copied())
		r.happens("restore")
		if output := r.nextLine(); output != guestboot.Ready {
			t.Fatalf("the guest says %q", output)
		}
	}
	// Without a configuration the guest does not know whether the sandbox was resumed, rolled back
	// or copied.
	r.happens("restore")
	if output := r.nextLine(); !strings.HasPrefix(output, "crannog-guest: read configuration") {
		t.Errorf("the guest says %q", output)
	}
}
