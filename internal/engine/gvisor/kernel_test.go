package gvisor

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// The error of a dead child contains the child's output, even if a process that the child started
// still holds its output open.
func TestDeadChildWithRunningProcess(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir := t.TempDir()
	program, pidFile := filepath.Join(dir, "runtime"), filepath.Join(dir, "pid")
	script := fmt.Sprintf("#!/bin/sh\nsleep 3000 3>&- 4>&- &\necho $! > %s\necho last words >&2\nexit 1\n", pidFile)
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{StateDir: dir, Log: slog.New(slog.DiscardHandler), Runtime: program, NoCgroups: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var pid int
		if text, err := os.ReadFile(pidFile); err == nil {
			_, _ = fmt.Sscan(string(text), &pid)
		}
		if p, err := os.FindProcess(pid); err != nil || pid < 2 || p.Kill() != nil {
			t.Errorf("control: the process %d of the child does not run any more", pid)
		}
	})
	err = e.Create(t.Context(), engine.Spec{ID: "iaaaaaaaaaaaaaaaaaaa", Image: engine.ViewOf(dir, "")})
	if err == nil || !strings.Contains(err.Error(), "last words") {
		t.Errorf("Create returned %v, want an error with the output of the child", err)
	}
}
