package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// activated starts crannog serve as systemd does: the shell has the process ID that the variable
// names, and becomes the server.
func activated(t *testing.T, passed *os.File, flags ...string) (*exec.Cmd, *servetest.Output, *bufio.Scanner) {
	t.Helper()
	script := `LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"`
	args := append([]string{"-c", script, "sh", binary, "serve", "--state", filepath.Join(t.TempDir(), "state"), "--pool", "off", "--no-key"}, flags...)
	cmd := exec.CommandContext(t.Context(), "/bin/sh", args...)
	cmd.ExtraFiles = []*os.File{passed}
	log := &servetest.Output{}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, log, bufio.NewScanner(out)
}

// TestSocketActivation passes a listening socket, with a client that has connected before the server
// started (P98). The start message has no key.
func TestSocketActivation(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	l.Close() // the passed descriptor keeps the socket
	early := make(chan string, 1)
	go func() { early <- get(t, url+"/healthz") }()
	// The setting is another address, which must stay unused.
	cmd, log, lines := activated(t, file, "--listen", "127.0.0.1:1")
	file.Close()
	var printed []string
	for lines.Scan() {
		printed = append(printed, lines.Text())
		if strings.HasPrefix(lines.Text(), "# serving on") {
			break
		}
	}
	if text := strings.Join(printed, "\n"); !strings.Contains(text, url) || strings.Contains(text, "export") || strings.Contains(text, "console") {
		t.Errorf("start message: %s\n%s", text, log)
	}
	if got := <-early; got != "ok\n" {
		t.Errorf("a client from before the start: got %q\n%s", got, log)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, log)
	}
}

// TestSocketActivationIsNoWayRoundInsecure checks that a socket that other machines can reach is
// refused like such an address in the settings.
func TestSocketActivationIsNoWayRoundInsecure(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd, log, lines := activated(t, file)
	for lines.Scan() {
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(log.String(), "can be reached from other machines") {
		t.Errorf("got %v\n%s", err, log)
	}
}

func get(t *testing.T, url string) string {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	res, err := new(http.Client).Do(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
