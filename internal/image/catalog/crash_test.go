package catalog_test

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/image/catalog"
	"github.com/crannog/crannog/internal/image/imagetest"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

var withProgram = catalog.Settings{Start: &sandbox.Start{Command: []string{"serve"}}}

// TestKilledChild is the process that is killed before its n-th step. It runs only as a child of
// TestCatalogSurvivesKill.
func TestKilledChild(t *testing.T) {
	dir := os.Getenv("CRANNOG_TEST_CATALOG")
	if dir == "" {
		return // not started as a child
	}
	stepsLeft, err := strconv.Atoi(os.Getenv("CRANNOG_TEST_STEP"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Open(catalog.Options{Dir: filepath.Join(dir, "catalog"), Library: openLibrary(t, dir, os.Getenv("CRANNOG_TEST_REGISTRY")), Step: func(name string) error {
		if stepsLeft--; stepsLeft == 0 {
			fmt.Println("killed before", name)
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Serve(t.Context(), &fakeSandboxes{memory: map[string]string{}}, auditlog.New(&audittest.Log{}, slog.New(slog.DiscardHandler))); err != nil {
		t.Fatal(err)
	}
	for _, do := range []func() error{
		func() error {
			_, err := c.Create(t.Context(), local, catalog.Request{Template: "app:2", Image: "app:1", Settings: withProgram})
			return err
		},
		func() error { _, err := c.Tag(t.Context(), local, "app:2", []string{"default"}); return err },
		func() error { return c.Remove(t.Context(), local, "app:2", true) },
		func() error { return c.Remove(t.Context(), local, "app", false) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("not killed")
}

// P56: a process that is killed at any step leaves every version complete or absent, and no memory
// that no version needs.
func TestCatalogSurvivesKill(t *testing.T) {
	host := imagetest.Registry(t)
	for step := 1; ; step++ {
		dir := t.TempDir()
		l := openLibrary(t, dir, host)
		r := &testCatalog{t: t, host: host, library: l}
		if _, err := l.Pull(t.Context(), r.publish("app:1", "one"), "", func(library.Progress) {}); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "app.tar")
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Export(t.Context(), host+"/app:1", "oci", f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Import(t.Context(), file, "app:1", "", func(library.Progress) {}); err != nil {
			t.Fatal(err)
		}
		sandboxes := &fakeSandboxes{memory: map[string]string{}}
		serve := func() *catalog.Catalog {
			c, err := catalog.Open(catalog.Options{Dir: filepath.Join(dir, "catalog"), Library: l})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Serve(t.Context(), sandboxes, auditlog.New(&audittest.Log{}, slog.New(slog.DiscardHandler))); err != nil {
				t.Fatal(err)
			}
			return c
		}
		before, err := serve().Create(t.Context(), local, catalog.Request{Template: "app:1", Image: "app:1", Settings: withProgram})
		if err != nil {
			t.Fatal(err)
		}
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestKilledChild$")
		child.Env = append(os.Environ(), "CRANNOG_TEST_CATALOG="+dir, "CRANNOG_TEST_REGISTRY="+host, "CRANNOG_TEST_STEP="+strconv.Itoa(step))
		out, err := child.CombinedOutput()
		if err == nil {
			if step < 6 {
				t.Fatalf("only %d steps: %s", step, out)
			}
			return
		}
		if state := child.ProcessState.Sys().(syscall.WaitStatus); !state.Signaled() {
			t.Fatalf("step %d: %v: %s", step, err, out)
		}
		// Memory that the child has saved for a version that may be gone.
		sandboxes.memory["of the child"] = before.ID + ":version-2"
		c := serve()
		all, err := c.List(local)
		if err != nil {
			t.Fatal(err)
		}
		need := map[string]bool{}
		for _, tpl := range all {
			for _, v := range tpl.Versions {
				if v.Maker != nil {
					t.Errorf("step %d: version %d is never completed: %s", step, v.Number, out)
				}
				need[v.Memory] = true
			}
			for tag, n := range tpl.Tags {
				if n != 1 && n != 2 || n == 2 && len(tpl.Versions) < 2 && tpl.Versions[0].Number != 2 {
					t.Errorf("step %d: the tag %s refers to no version: %s", step, tag, out)
				}
			}
		}
		for memory := range sandboxes.memory {
			if !need[memory] {
				t.Errorf("step %d: memory %q is not needed, but still exists: %s", step, memory, out)
			}
		}
		if _, err := c.Create(t.Context(), local, catalog.Request{Template: "app:3", Image: "app:1"}); err != nil {
			t.Errorf("step %d: the catalog does not work any more: %v", step, err)
		}
	}
}
