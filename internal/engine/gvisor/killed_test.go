package gvisor_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/gvisor"
	"github.com/crannog/crannog/internal/engine/linux/ocispec"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// killLog is a log handler that counts warnings about a killed guest, and creates a file at the
// first one.
type killLog struct {
	slog.Handler
	file  string
	count int
}

// Handle implements slog.Handler.
func (h *killLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "the guest was killed") {
		h.count++
		if h.file != "" {
			if err := os.WriteFile(h.file, nil, 0o644); err != nil {
				return err
			}
		}
	}
	return h.Handler.Handle(ctx, r)
}

// A guest that is killed before it is ready is started a second time, but not a third time.
func TestKilledGuestIsStartedAgain(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Bash)
	for _, repaired := range []bool{true, false} {
		r := root(t)
		// This guest kills itself unless the file repaired exists.
		shared := t.TempDir()
		if err := os.Chmod(shared, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(r.View().Dir, "shared"), 0o755); err != nil {
			t.Fatal(err)
		}
		r, err := r.Show(engine.Bind{Source: shared, Target: "/shared"})
		if err != nil {
			t.Fatal(err)
		}
		script := "#!/bin/bash\n[ -e /shared/repaired ] || kill -9 $$\nexec -a " + ocispec.GuestArg0 + " " + r.Guest + "\n"
		if err := os.WriteFile(filepath.Join(shared, "guest"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		r.Guest = "/shared/guest"

		log := &killLog{Handler: slog.NewTextHandler(t.Output(), nil)}
		if repaired {
			log.file = filepath.Join(shared, "repaired")
		}
		e, err := gvisor.New(gvisor.Options{StateDir: t.TempDir(), Log: slog.New(log)})
		if err != nil {
			t.Fatal(err)
		}
		err = e.Create(t.Context(), engine.Spec{ID: "killed", Image: r, Boot: engine.Boot{Config: config(t, "killed")}})
		if repaired && err != nil {
			t.Errorf("not started again: %v", err)
		}
		if !repaired && (fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "ended")) {
			t.Errorf("a guest that is killed each time: %v", err)
		}
		if log.count != 1 {
			t.Errorf("repaired %v: %d warnings, want 1", repaired, log.count)
		}
		if err := e.Remove(t.Context(), "killed"); err != nil {
			t.Error(err)
		}
		if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("sandboxes left: %v %v", list, err)
		}
	}
}
