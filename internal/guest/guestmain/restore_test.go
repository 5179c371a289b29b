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

// copiedConfig returns the configuration of another sandbox that is a copy of the sandbox with
// config.
func copiedConfig() guest.Config {
	cfg := config()
	cfg.Renew, cfg.SandboxID, cfg.Hostname = guest.Copied, "copy", "another"
	cfg.AccessToken, cfg.ControlToken = "access2", "control2"
	cfg.Env = map[string]string{"WHOSE": "the copy's"}
	return cfg
}

func (r *testGuest) file(name string) string {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.root, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(data)
}

// dial opens the first stream to the guest's own port.
func (r *testGuest) dial() net.Conn {
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

// A copy does not end because the end time of its source has passed, even if it takes long until
// the copy's own end time applies.
func TestCopyIgnoresEndTimeOfSource(t *testing.T) {
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
		t.Fatalf("the guest printed %q", output)
	}
	r.configure(copiedConfig())
	r.sendEvent("restore")
	<-time.After(3 * time.Second) // longer than the guest waits for a new end time
	if _, err := slow.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if output := r.nextLine(); output != guestboot.Ready {
		t.Errorf("the guest printed %q", output)
	}
}

func TestCopyHasNewIdentity(t *testing.T) {
	cfg := config()
	cfg.Files = []guest.File{{Path: "/etc/resolv.conf", Mode: 0o644, Data: []byte("first\n")}}
	r := boot(t, cfg)
	machine := r.file("etc/machine-id")
	if len(machine) != 33 {
		t.Fatalf("machine ID: got %q, want 32 digits", machine)
	}
	next := copiedConfig()
	next.Files = []guest.File{{Path: "/etc/resolv.conf", Mode: 0o644, Data: []byte("second\n")}}
	r.configure(next)
	r.sendEvent("restore")
	if output := r.nextLine(); output != guestboot.Ready {
		t.Fatalf("the guest printed %q", output)
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
		t.Errorf("machine ID: got %q, before it was %q", got, machine)
	}
	if got := r.file("etc/hostname"); got != "another\n" {
		t.Errorf("host name: got %q, want another", got)
	}
	if got := r.file("etc/hosts"); !strings.Contains(got, " another\n") || strings.Contains(got, "inside") {
		t.Errorf("hosts: got %q, want another in place of inside", got)
	}
	if got := r.file("etc/resolv.conf"); got != "second\n" {
		t.Errorf("resolv.conf: got %q, want the file of the new configuration", got)
	}
	r.file("fresh") // a new boot ID was requested
	r.access = "access2"
	if got := r.shell(`test "$(uname -n)" = another && exit 7`); !strings.Contains(got, `"exit status 7"`) {
		t.Errorf("the host name inside: %q", got)
	}
}

// A resumed sandbox keeps its machine ID, and gets no new boot ID.
func TestResumeKeepsMachineID(t *testing.T) {
	r := boot(t, config())
	machine := r.file("etc/machine-id")
	next := config()
	next.Renew, next.AccessToken = guest.Resumed, "access2"
	for range 2 {
		// Saving a state changes nothing, even if it is repeated.
		r.sendEvent("resume")
		if code, _ := r.call("GET", guest.PathReady, "", guest.ControlHeader, "control"); code != 204 {
			t.Fatalf("ready: got status %d, want 204", code)
		}
		r.configure(next)
		r.sendEvent("restore")
		if output := r.nextLine(); output != guestboot.Ready {
			t.Fatalf("the guest printed %q", output)
		}
	}
	if got := r.file("etc/machine-id"); got != machine {
		t.Errorf("machine ID: got %q, before it was %q", got, machine)
	}
	if _, err := os.Stat(filepath.Join(r.root, "fresh")); err == nil {
		t.Error("a new boot ID was generated")
	}
	if code, _ := r.call("GET", "/envs", "", "X-Access-Token", "access2"); code != 200 {
		t.Errorf("the new access token: %d", code)
	}
}

// A restore cuts the stream of a running command, and the command continues.
func TestRestoreCutsStreams(t *testing.T) {
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
	r.configure(copiedConfig())
	r.sendEvent("restore")
	if output := r.nextLine(); output != guestboot.Ready {
		t.Fatalf("the guest printed %q", output)
	}
	rest, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the stream was not cut")
	}
	if strings.Contains(string(rest), `"end"`) {
		t.Errorf("the stream reports the end of the command, which still runs: %q", rest)
	}
	r.access = "access2"
	if code, body := r.call("POST", "/process.Process/List", "{}", "Content-Type", "application/json", "X-Access-Token", "access2"); code != 200 || !strings.Contains(body, `"mine"`) {
		t.Errorf("the command is not listed any more: %d %s", code, body)
	}
}

// A restored sandbox with an invalid configuration or a failing check does not report that it is
// ready, and its guest ends.
func TestRestoreFailsIfCheckFails(t *testing.T) {
	for name, change := range map[string]func(*guest.Config){
		"checks":  func(c *guest.Config) { c.Checks = probe.Checks{DiskBytes: 1} },
		"renewal": func(c *guest.Config) { c.Renew = "" },
		"token":   func(c *guest.Config) { c.AccessToken = "" },
	} {
		t.Run(name, func(t *testing.T) {
			r := boot(t, config())
			next := copiedConfig()
			change(&next)
			r.configure(next)
			r.sendEvent("restore")
			output := r.nextLine()
			if !strings.HasPrefix(output, "crannog-guest: ") {
				t.Errorf("the guest printed %q", output)
			}
			if err := r.cmd.Wait(); err == nil || r.cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("the guest ended with %v, want exit status 1", err)
			}
		})
	}
}

// The guest replaces its standard streams by /dev/null, so that it cannot write to them by mistake.
func TestStandardStreamsAreReplaced(t *testing.T) {
	r := boot(t, config())
	for _, fd := range []string{"0", "1", "2"} {
		name, to := filepath.Join("/proc", strconv.Itoa(r.cmd.Process.Pid), "fd", fd), ""
		// The guest reports that it is ready shortly before it replaces its standard streams.
		for end := hosttest.Deadline(); to != os.DevNull && time.Now().Before(end); {
			to, _ = os.Readlink(name)
		}
		if to != os.DevNull {
			t.Errorf("descriptor %s is %q, want %s", fd, to, os.DevNull)
		}
	}
}

// When two saves start in quick succession, a sandbox that is restored from the second one gets
// only one event.
func TestTwoSavesWithOneEvent(t *testing.T) {
	r := boot(t, config())
	for range 2 {
		r.configure(copiedConfig())
		r.sendEvent("resume")
		if output := r.nextLine(); output != guestboot.Ready {
			t.Fatalf("the guest printed %q", output)
		}
		r.sendEvent("restore") // its configuration was applied already
		// This save changes nothing. Once its event has been read, the previous event has been
		// handled without the configuration that follows.
		r.sendEvent("resume")
		r.configure(copiedConfig())
		r.sendEvent("restore")
		if output := r.nextLine(); output != guestboot.Ready {
			t.Fatalf("the guest printed %q", output)
		}
	}
	// Without a configuration the guest does not know whether the sandbox was resumed, rolled back
	// or copied.
	r.sendEvent("restore")
	if output := r.nextLine(); !strings.HasPrefix(output, "crannog-guest: read configuration") {
		t.Errorf("the guest printed %q", output)
	}
}
