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

func (m *killLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "the guest was killed") {
		m.count++
		if m.file != "" {
			if err := os.WriteFile(m.file, nil, 0o644); err != nil {
				return err
			}
		}
	}
	return m.Handler.Handle(ctx, r)
}

// A guest that is killed before it is ready is started a second time, but not a third time.
func TestAKilledGuestStartsAgain(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Bash)
	for _, repaired := range []bool{true, false} {
		r := root(t)
		// This guest kills itself while the file does not exist.
		signs := t.TempDir()
		if err := os.Chmod(signs, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(r.View().Dir, "signs"), 0o755); err != nil {
			t.Fatal(err)
		}
		r, err := r.Show(engine.Bind{Source: signs, Target: "/signs"})
		if err != nil {
			t.Fatal(err)
		}
		script := "#!/bin/bash\n[ -e /signs/mended ] || kill -9 $$\nexec -a " + ocispec.GuestArg0 + " " + r.Guest + "\n"
		if err := os.WriteFile(filepath.Join(signs, "guest"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		r.Guest = "/signs/guest"

		log := &killLog{Handler: slog.NewTextHandler(t.Output(), nil)}
		if repaired {
			log.file = filepath.Join(signs, "mended")
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
			t.Errorf("mended %v: %d warnings, want 1", repaired, log.count)
		}
		if err := e.Remove(t.Context(), "killed"); err != nil {
			t.Error(err)
		}
		if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("left: %v %v", list, err)
		}
	}
}
