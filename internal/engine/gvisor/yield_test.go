package gvisor

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/image/template"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// A sandbox for which no caller waits yields the processors to others until it is ready.
func TestUnhurriedSandboxHasLowWeight(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	e, err := New(Options{StateDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root, err := template.NewHost(t.TempDir(), self).Image()
	if err != nil {
		t.Fatal(err)
	}
	spec := engine.Spec{Image: root, Limits: engine.Limits{}.OrDefault()}
	weightOf := func(k *kernel, err error) int {
		if err != nil {
			t.Fatal(err)
		}
		defer k.discard()
		return weight(t, k)
	}
	normal := weightOf(e.newPrestarted(t.Context(), spec))
	if prestarted := weightOf(e.newPrestartedSlowly(t.Context(), spec)); prestarted != normal {
		t.Errorf("a prestarted kernel that is ready has the weight %d, want %d", prestarted, normal)
	}
	spec.Unhurried = true
	k, err := e.newPrestarted(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer k.discard()
	if low := weight(t, k); low*10 > normal || low == 0 {
		t.Errorf("while it is created the kernel has the weight %d, want at most a tenth of %d", low, normal)
	}
	if err := k.setYield(false); err != nil || weight(t, k) != normal {
		t.Errorf("afterwards the kernel has the weight %d, %v; want %d", weight(t, k), err, normal)
	}
}

// weight returns the weight of the control group of a sandbox's kernel.
func weight(t *testing.T, k *kernel) int {
	t.Helper()
	name, dir := "cpu.weight", k.b.rec.Group.Dirs["unified"]
	if dir == "" {
		name, dir = "cpu.shares", k.b.rec.Group.Dirs["cpu"]
	}
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
