// Package clamdtest starts ClamAV's real daemon for tests, with a small database of its own.
package clamdtest

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// Signature is the text that the daemon finds, and Name the name of its signature.
const (
	Signature = "crannog-scan-test-signature"
	Name      = "Crannog.Test.UNOFFICIAL"
)

// program is where Debian installs the daemon.
const program = "/usr/sbin/clamd"

var installed = hosttest.Requirement{Name: program, Has: func() bool {
	_, err := os.Stat(program)
	return err == nil
}}

// Start starts a daemon with further lines of configuration, and returns its address. It skips the
// test on a host without the daemon, and fails it on CI.
func Start(t *testing.T, lines string) string {
	t.Helper()
	hosttest.Need(t, installed)
	dir, err := os.MkdirTemp("", "clamd") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, config := filepath.Join(dir, "s"), filepath.Join(dir, "clamd.conf")
	for name, text := range map[string]string{
		filepath.Join(dir, "test.ndb"): "Crannog.Test:0:*:" + hex.EncodeToString([]byte(Signature)) + "\n",
		config:                         fmt.Sprintf("LocalSocket %s\nDatabaseDirectory %s\nTemporaryDirectory %s\nForeground yes\nSelfCheck 0\n%s", socket, dir, dir, lines),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "-c", config) // the cleanup ends it
	out, err := os.OpenFile(filepath.Join(dir, "out"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for dialer := (net.Dialer{}); ; {
		if conn, err := dialer.DialContext(t.Context(), "unix", socket); err == nil {
			_, err = io.WriteString(conn, "zPING\x00")
			reply, _ := io.ReadAll(conn)
			conn.Close()
			if err == nil && string(reply) == "PONG\x00" {
				return "unix://" + socket
			}
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(out.Name())
			t.Fatalf("clamd ended: %s", text)
		case <-t.Context().Done():
			t.Fatal("clamd does not answer")
		case <-time.After(20 * time.Millisecond):
		}
	}
}
