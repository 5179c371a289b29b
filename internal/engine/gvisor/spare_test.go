package gvisor

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// emptyEngine returns an engine without sandboxes.
func emptyEngine(t *testing.T) *Engine {
	t.Helper()
	e, err := New(Options{StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// If a server is killed before a prestarted kernel has its record, the next server removes the
// kernel. It removes no kernel of a running server.
func TestListRemovesKernelsWithoutRecord(t *testing.T) {
	dir := t.TempDir()
	e, err := New(Options{StateDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	create := func(name string) string {
		path := filepath.Join(e.dir, prestartedPrefix+name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	self := processOf(os.Getpid())
	earlier := self
	earlier.Start--
	running := create("krunning" + suffix(self))
	ended := []string{create("kended" + suffix(earlier)), create("kold"), create("kodd.x-y")}
	// The directory of an interrupted Archive contains a state.
	if err := os.WriteFile(filepath.Join(ended[0], stateFiles[0]), []byte("large"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, path := range ended {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if _, err := os.Stat(running); err != nil {
		t.Error(err)
	}
}

// The directory of a replaced instance has the name of the sandbox's present kernel. If a server is
// killed after it has removed the record in that directory and before it removes the directory, the
// cleanup must not kill the sandbox's kernel.
func TestCleanupKeepsKernelWithSameName(t *testing.T) {
	e := emptyEngine(t)
	earlier := processOf(os.Getpid())
	earlier.Start--
	startKernel := func(name string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "/bin/cat")
		cmd.Args = []string{"runsc-sandbox", "-", name}
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(e.dir, prestartedPrefix+name+suffix(earlier)), 0o700); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	const id = "iaaaaaaaaaaaaaaaaaaa"
	used, untracked := startKernel("kused"), startKernel("kuntracked")
	rec := record{ID: id, Kernel: "kused", Sentry: processOf(used.Process.Pid)}
	if err := errors.Join(os.Mkdir(e.instanceDir(id), 0o700), rec.write(e.instanceDir(id))); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- untracked.Wait() }()
	list, err := e.List(t.Context())
	if err != nil || len(list) != 1 || list[0].State != engine.Running || !rec.Sentry.Alive() {
		t.Errorf("the sandbox is listed as %+v, %v; want running", list, err)
	}
	if err := <-ended; err == nil {
		t.Error("control: a kernel that no record names was not killed")
	}
	left, err := filepath.Glob(filepath.Join(e.dir, prestartedPrefix+"*"))
	if err != nil || len(left) != 0 {
		t.Errorf("directories left: %v, %v", left, err)
	}
	if err := used.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = used.Wait() // it was killed
}

// The process that replaces a sandbox becomes its creator in the record. After a crash of this
// process, the cleanup then removes the replaced sandbox, although its first creator may still run.
func TestReplacingProcessAdoptsSandbox(t *testing.T) {
	e := emptyEngine(t)
	create := func(rec record, dir string) *instance {
		if err := errors.Join(os.Mkdir(dir, 0o700), rec.write(dir)); err != nil {
			t.Fatal(err)
		}
		return newInstance(e, rec, dir)
	}
	const id = "iaaaaaaaaaaaaaaaaaaa"
	self, creator := processOf(os.Getpid()), processOf(os.Getppid())
	old := create(record{ID: id, Kernel: "kold", Creator: creator, Sentry: creator}, e.instanceDir(id))
	next := create(record{ID: id, Kernel: "knext", Creator: self, Sentry: self}, filepath.Join(e.dir, prestartedPrefix+"knext"))
	if err := errors.Join(old.adopt(), old.replaceBy(next, id)); err != nil {
		t.Fatal(err)
	}
	if rec, err := readRecord(old.dir); err != nil || rec.Kernel != "kold" || rec.Creator != self {
		t.Errorf("the record of the replaced instance is %+v, %v", rec, err)
	}
	if rec, err := readRecord(e.instanceDir(id)); err != nil || rec.Kernel != "knext" {
		t.Errorf("the record of the new instance is %+v, %v", rec, err)
	}
	// A process that still uses the old instance does not change the record of the new one.
	stale := newInstance(e, old.rec, e.instanceDir(id))
	if err := stale.adopt(); !errors.Is(err, errReplaced) {
		t.Errorf("adopting a replaced instance: got %v, want errReplaced", err)
	}
	stale.ended(nil)
	if rec, err := readRecord(e.instanceDir(id)); err != nil || rec.Exit != nil || rec.Kernel != "knext" {
		t.Errorf("after the end of the old instance, the record of the new one is %+v, %v", rec, err)
	}
}

// The name of a new kernel differs from that of a kernel which is still being removed.
func TestKernelNameDiffersFromRemovedKernel(t *testing.T) {
	e := emptyEngine(t)
	spec := engine.Spec{ID: "iaaaaaaaaaaaaaaaaaaa"}
	dir := filepath.Join(e.dir, prestartedPrefix+"kother"+suffix(processOf(os.Getpid())))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for kernel, nameFree := range map[string]bool{spec.ID: false, "kother": true} {
		if err := (record{ID: spec.ID, Kernel: kernel}).write(dir); err != nil {
			t.Fatal(err)
		}
		if name := e.kernelName(spec); (name == spec.ID) != nameFree {
			t.Errorf("while the kernel %s is being removed, the new name is %s", kernel, name)
		}
	}
	if err := os.Remove(filepath.Join(dir, sandboxdir.RecordName)); err != nil {
		t.Fatal(err)
	}
	if name := e.kernelName(spec); name != spec.ID {
		t.Errorf("after the record is removed, the new name is %s, want the ID", name)
	}
}

// The caller that paces the engine decides when a kernel is prestarted, and learns when that ended.
func TestPrestartsAreRefusedAndPaced(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	e := emptyEngine(t)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	var asked, ended atomic.Int32
	e.Pace(func() (func(), bool) {
		if asked.Add(1) < 3 {
			return nil, false
		}
		return func() { ended.Add(1) }, true
	})
	// Whether the kernel of a sandbox without files starts makes no difference here.
	e.Warm([]engine.Prestarted{{Spec: engine.Spec{ID: "paced"}, Count: 1}})
	hosttest.Eventually(t, "the end of the start", func() bool { return ended.Load() > 0 })
	if asked.Load() < 3 {
		t.Errorf("asked %d times, want a retry after each refusal", asked.Load())
	}
}
