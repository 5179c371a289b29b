package standard_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/hosttest"
)

func TestMain(m *testing.M) {
	crannog.Main()
	os.Exit(m.Run())
}

// A Go program runs sandboxes without a server, and nothing outlives it that
// it did not mean to keep.
func TestLocal(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Bash)
	// A socket's path has at most 107 bytes.
	state, err := os.MkdirTemp("", "cl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(state); err != nil {
			t.Error(err)
		}
	})
	client, err := crannog.Local(t.Context(), crannog.State(state))
	if err != nil {
		t.Fatal(err)
	}
	use(t, client)
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if left := holders(t, state); len(left) > 0 {
		t.Errorf("left running: %s", left)
	}
}

func use(t *testing.T, client *crannog.Client) {
	t.Helper()
	sb, err := client.Create(t.Context(), crannog.Ephemeral())
	if err != nil {
		t.Fatal(err)
	}
	if info := sb.Info(); info.Boundary != "userspace-kernel" || len(info.Effective.Enforced) < 4 {
		t.Errorf("%+v", info)
	}
	out, err := sb.CommandContext(t.Context(), "bash", "-lc", "id -un; echo $0").Output()
	if err != nil || string(out) != "user\nbash\n" {
		t.Errorf("%q %v", out, err)
	}
	files := sb.FS().WithContext(t.Context())
	if err := files.WriteFile("home/user/tool", []byte("#!/bin/sh\necho ran\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := sb.CommandContext(t.Context(), "/home/user/tool").Output(); err != nil || string(out) != "ran\n" {
		t.Errorf("%q %v", out, err)
	}
	if _, err := files.ReadFile("etc/shadow"); err == nil {
		t.Error("the host's passwords are inside")
	}
	if _, err := files.Stat("root/.ssh"); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, crannog.ErrDenied) {
		t.Errorf("root's home: %v", err)
	}
	for event, err := range sb.RunCode(t.Context(), "6*7") {
		if err != nil {
			t.Fatal(err)
		}
		if event.Type == "result" && event.Text != "42" {
			t.Errorf("%+v", event)
		}
	}
}

// holders lists the processes of boxes below a state directory.
func holders(t *testing.T, state string) []string {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, f := range files {
			if line, err := os.ReadFile(f); err == nil && strings.Contains(string(line), state+"/run/") {
				found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
		if len(found) == 0 || time.Now().After(deadline) {
			return found
		}
	}
}
