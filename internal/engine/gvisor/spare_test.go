package gvisor

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
)

func emptyEngine(t *testing.T) *Engine {
	t.Helper()
	e, err := New(Options{StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// If a server is killed before a prestarted kernel has its record, the next server removes the
// kernel, but none of a running server.
func TestSparesWithoutARecord(t *testing.T) {
	dir := t.TempDir()
	e, err := New(Options{StateDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	made := func(name string) string {
		path := filepath.Join(e.dir, prestartedDir+name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	self := processOf(os.Getpid())
	earlier := self
	earlier.Start--
	lives := made("klives" + suffix(self))
	over := []string{made("kover" + suffix(earlier)), made("kold"), made("kodd.x-y")}
	// The directory of an interrupted copy for reading files contains a state.
	if err := os.WriteFile(filepath.Join(over[0], stateFiles[0]), []byte("large"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, path := range over {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if _, err := os.Stat(lives); err != nil {
		t.Error(err)
	}
}

// The directory of an earlier instance of a restored sandbox is named after the present kernel of
// the sandbox. If a server is killed between the removal of the record in it and that of the
// directory, the sandbox must keep its kernel.
func TestDirectoryOfAReplacedBox(t *testing.T) {
	e := emptyEngine(t)
	earlier := processOf(os.Getpid())
	earlier.Start--
	kernel := func(name string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "/bin/cat")
		cmd.Args = []string{"runsc-sandbox", "-", name}
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(e.dir, prestartedDir+name+suffix(earlier)), 0o700); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	const id = "iaaaaaaaaaaaaaaaaaaa"
	held, stray := kernel("kheld"), kernel("kstray")
	rec := record{ID: id, Kernel: "kheld", Sentry: processOf(held.Process.Pid)}
	if err := errors.Join(os.Mkdir(e.instanceDir(id), 0o700), rec.write(e.instanceDir(id))); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stray.Wait() }()
	list, err := e.List(t.Context())
	if err != nil || len(list) != 1 || list[0].State != engine.Running || !rec.Sentry.Alive() {
		t.Errorf("the box: %+v, %v", list, err)
	}
	if err := <-ended; err == nil {
		t.Error("control: a kernel of which no box knows was not ended")
	}
	left, err := filepath.Glob(filepath.Join(e.dir, prestartedDir+"*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := held.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = held.Wait() // it was killed
}

// The process that replaced a sandbox removes what is left of it, because the process that created
// the sandbox may run for long after a crash of the other one.
func TestAReplacedBoxIsItsReplacers(t *testing.T) {
	e := emptyEngine(t)
	made := func(rec record, dir string) *instance {
		if err := errors.Join(os.Mkdir(dir, 0o700), rec.write(dir)); err != nil {
			t.Fatal(err)
		}
		return newInstance(e, rec, dir)
	}
	const id = "iaaaaaaaaaaaaaaaaaaa"
	self, maker := processOf(os.Getpid()), processOf(os.Getppid())
	old := made(record{ID: id, Kernel: "kold", Creator: maker, Sentry: maker}, e.instanceDir(id))
	next := made(record{ID: id, Kernel: "knext", Creator: self, Sentry: self}, filepath.Join(e.dir, prestartedDir+"knext"))
	if err := errors.Join(old.adopt(), old.replaceBy(next, id)); err != nil {
		t.Fatal(err)
	}
	if rec, err := readRecord(old.dir); err != nil || rec.Kernel != "kold" || rec.Creator != self {
		t.Errorf("the replaced one: %+v, %v", rec, err)
	}
	if rec, err := readRecord(e.instanceDir(id)); err != nil || rec.Kernel != "knext" {
		t.Errorf("the new one: %+v, %v", rec, err)
	}
	// A process that still uses the old instance of the sandbox changes nothing of the new one.
	stale := newInstance(e, old.rec, e.instanceDir(id))
	if err := stale.adopt(); !errors.Is(err, errReplaced) {
		t.Errorf("a replaced box was adopted: %v", err)
	}
	stale.ended(nil)
	if rec, err := readRecord(e.instanceDir(id)); err != nil || rec.Exit != nil || rec.Kernel != "knext" {
		t.Errorf("the new one after the end of the old one: %+v, %v", rec, err)
	}
}

// If a restored sandbox is created again, its kernel's name differs from that of a kernel that is
// still being removed.
func TestNoNameTwice(t *testing.T) {
	e := emptyEngine(t)
	spec := engine.Spec{ID: "iaaaaaaaaaaaaaaaaaaa"}
	dir := filepath.Join(e.dir, prestartedDir+"kother"+suffix(processOf(os.Getpid())))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for kernel, free := range map[string]bool{spec.ID: false, "kother": true} {
		if err := (record{ID: spec.ID, Kernel: kernel}).write(dir); err != nil {
			t.Fatal(err)
		}
		if name := e.kernelName(spec); (name == spec.ID) != free {
			t.Errorf("beside the removal of %s it is called %s", kernel, name)
		}
	}
	if err := os.Remove(filepath.Join(dir, sandboxdir.RecordName)); err != nil {
		t.Fatal(err)
	}
	if name := e.kernelName(spec); name != spec.ID {
		t.Errorf("beside the end of a removal it is called %s", name)
	}
}
