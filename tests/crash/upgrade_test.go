package crash_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/hosttest"
	"github.com/crannog/crannog/internal/servetest"
)

// P7: what was paused under one build of the program goes on under another.
func TestPausedAcrossAnUpgrade(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	state := t.TempDir()
	first := servetest.Start(t, program, state)
	sb, err := first.Client(t).Create(t.Context(), crannog.Timeout(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	remember(t, sb, 42)
	if err := sb.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Stop(t)
	upgraded := filepath.Join(t.TempDir(), "crannog-upgraded")
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(upgraded, append(data, 0), 0o755); err != nil {
		t.Fatal(err)
	}
	second := servetest.Start(t, upgraded, state)
	if sb, err = second.Client(t).Get(t.Context(), sb.ID()); err != nil {
		t.Fatal(err)
	}
	if err := sb.Resume(t.Context(), time.Minute); err != nil {
		t.Fatalf("%v\n%s", err, second.Stderr())
	}
	if got := recall(t, sb); got != "42" {
		t.Errorf("the program remembers %q", got)
	}
	if err := sb.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	second.Stop(t)
	servetest.NothingLeft(t, state)
	if strings.Contains(second.Stderr(), "panic") {
		t.Error(second.Stderr())
	}
}
