package gvisor

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

// A crash is logged even if no caller waits. An end without output is not logged.
func TestCrashIsLogged(t *testing.T) {
	for name, c := range map[string]struct {
		output, logged string
	}{
		"crash":  {"panic: made by a test\n\ngoroutine 1 [running]:\n", `words="panic: made by a test"`},
		"forged": {"\x1b[2J\nlevel=INFO", `words="\x1b[2J"`},
		"long":   {strings.Repeat("x", 1<<20), "words=" + strings.Repeat("x", maxCrashOutput) + "\n"},
		"killed": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			e, err := New(Options{StateDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, crashOutputName), []byte(c.output), 0o600); err != nil {
				t.Fatal(err)
			}
			b := newInstance(e, record{ID: "box", Kernel: "box"}, dir)
			b.ended(nil)
			if b.exit.Reason != engine.ReasonCrashed {
				t.Errorf("the reason is %q, want crashed", b.exit.Reason)
			}
			if got := log.String(); (c.logged == "") != (got == "") || !strings.Contains(got, c.logged) || strings.Count(got, "\n") > 1 {
				t.Errorf("logged %.100q, want %.100q", got, c.logged)
			}
		})
	}
}
