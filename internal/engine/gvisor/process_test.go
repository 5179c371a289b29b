package gvisor

import (
	"os"
	"testing"

	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// processOf identifies a process that is known to be there.
func processOf(pid int) process.Process {
	p, err := process.Identify(pid)
	if err != nil {
		panic(err)
	}
	return p
}

// Processes that cannot be looked for are not treated as absent.
func TestStraysAreUnknown(t *testing.T) {
	hosttest.WithoutDescriptors(t, func() {
		if strays, err := (&instance{rec: record{Kernel: "k"}}).strays(); err == nil {
			t.Errorf("strays were not looked for, and the result is %v", strays)
		}
	})
}

// A record that cannot be read ends no sandbox: only a missing record lets a sandbox be removed.
func TestUnreadableRecord(t *testing.T) {
	e := emptyEngine(t)
	if err := os.MkdirAll(e.instanceDir("iaaaaaaaaaaaaaaaaaaa")+"/"+sandboxdir.RecordName, 0o700); err != nil {
		t.Fatal(err)
	}
	if list, err := e.List(t.Context()); err == nil {
		t.Errorf("it is listed as %+v", list)
	}
}
